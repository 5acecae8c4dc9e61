//! The `creditd` binary.

fn main() -> std::process::ExitCode {
    creditd::telemetry::install_panic_hook();
    creditd::cli::main()
}
