//! The program under test: the same three lines as those of the `quantsmith` command.

fn main() -> std::process::ExitCode {
    quantsmith_cli::main(quantsmith_cli::Registry::builtin())
}
