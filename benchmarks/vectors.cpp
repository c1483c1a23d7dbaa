// SGD of phase retrieval with two students on vectors, in d dimensions, as one would write it: vectors D STEPS
#include <Eigen/Dense>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>

int main(int, char** given) {
    const int d = std::atoi(given[1]);
    const long steps = std::atol(given[2]);
    const double rate = 0.05, root = std::sqrt(double(d));
    std::mt19937_64 bits(0);
    std::normal_distribution<double> normal;
    const auto drawn = [&]() { return normal(bits); };
    Eigen::VectorXd teacher = Eigen::VectorXd::NullaryExpr(d, drawn).normalized() * root;
    Eigen::Matrix<double, 2, Eigen::Dynamic, Eigen::RowMajor> W = Eigen::MatrixXd::NullaryExpr(2, d, drawn);
    Eigen::VectorXd x(d);
    for (long step = 0; step < steps; ++step) {
        for (int i = 0; i < d; ++i) x[i] = normal(bits);
        const Eigen::Vector2d fields = W * x / root;
        const double target = teacher.dot(x) / root;
        const double error = fields.squaredNorm() / 2 - target * target;
        W.noalias() -= (rate / root * error) * fields * x.transpose();
    }
    std::cout << W * W.transpose() / d << "\n";
}
