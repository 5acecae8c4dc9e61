//! `completions` and `man`: what can be typed, for shells and for readers.

use super::Outcome;
use super::out::Out;
use super::typed;
use anyhow::Context as _;

/// The script that completes words in a shell.
pub(super) fn completions(out: &mut Out, shell: clap_complete::Shell) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut typed::command(), "creditd", &mut script);
    out.bytes(&script)
}

/// The pages of the command and of all its subcommands in one file, as `man` shows them one after another.
pub(super) fn man(out: &mut Out) -> anyhow::Result<Outcome> {
    let mut command = typed::command();
    command.build();
    let mut pages = Vec::new();
    man_pages(&command, &mut pages).context("render the manual page")?;
    out.bytes(&pages)
}

fn man_pages(command: &clap::Command, pages: &mut Vec<u8>) -> std::io::Result<()> {
    let title = command.get_bin_name().unwrap_or("creditd").replace(' ', "-");
    clap_mangen::Man::new(command.clone())
        .title(title)
        .render(pages)?;
    command
        .get_subcommands()
        .filter(|below| below.get_name() != "help")
        .try_for_each(|below| man_pages(below, pages))
}
