//! The `quantsmith` command with the formats that are built in.

fn main() -> std::process::ExitCode {
    quantsmith_cli::main(quantsmith_cli::Registry::builtin())
}
