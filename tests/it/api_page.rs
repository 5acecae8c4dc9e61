//! The lines of docs/api.md and of the README's part on the API, run as they stand there.

use std::path::Path;
use std::process::Command;

use crate::common::api::{fill_pool, with_api};
use crate::common::daemon::Daemon;
use crate::common::fake_chain::FakeNode;

/// The first shell block after a heading, a command a line.
fn commands(page: &str, heading: &str) -> Vec<String> {
    let (_, part) = page.split_once(heading).unwrap();
    let (_, rest) = part.split_once("```sh\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let whole = block.replace("\\\n", " ");
    whole.lines().map(str::to_owned).collect()
}

/// What each command says, beside a daemon that has addresses to hand out.
fn said_by(commands: Vec<String>) -> Vec<String> {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    daemon.wait_height(1);
    fill_pool(&daemon, 5);
    let folder = Path::new(env!("CARGO_BIN_EXE_creditd")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let api = format!("http://127.0.0.1:{}", daemon.api_port());
    let (mut key, mut said) = (String::new(), Vec::new());
    for command in commands {
        if let Some(shown) = command.strip_prefix("export KEY=") {
            assert_eq!(shown, "ck_...");
            let last: &String = said.last().unwrap();
            let mut words = last.split_whitespace();
            key = words.find(|word| word.starts_with("ck_")).unwrap().to_owned();
            continue;
        }
        if command.starts_with("export API=") {
            assert_eq!(command, "export API=http://127.0.0.1:9334");
            continue;
        }
        let output = Command::new("sh")
            .args(["-c", &command.replace("http://127.0.0.1:9334", &api)])
            .env("PATH", &path)
            .env("CREDITD_CONFIG", daemon.config_file())
            .env("KEY", &key)
            .env("API", &api)
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        said.push(String::from_utf8(output.stdout).unwrap());
    }
    said
}

#[test]
fn every_command_of_the_page_does_what_it_is_there_for() {
    let page = include_str!("../../docs/api.md");
    let said = said_by(commands(page, "## From a key to an invoice"));
    assert_eq!(said.len(), 8, "every command ran");
    assert!(said[2].contains("\"merchant\":\"shop\""), "{}", said[2]);
    assert!(said[3].contains("\"amount_base\":\"29000000\""), "{}", said[3]);
    for list in &said[4..6] {
        assert!(list.contains("\"order-1\""), "{list}");
    }
    assert!(said[6].contains("/v1/events/stream"));
    assert!(said[7].contains("web"), "{}", said[7]);
}

#[test]
fn the_readme_takes_a_payment_by_the_api() {
    let readme = include_str!("../../README.md");
    let said = said_by(commands(readme, "## Take payments by the API"));
    assert_eq!(said.len(), 3, "every command ran");
    let invoice: serde_json::Value = serde_json::from_str(&said[2]).unwrap();
    assert!(
        invoice["address"].as_str().unwrap().starts_with("bcrt1"),
        "{invoice}"
    );
    assert_eq!(invoice["amount"], "0.29");
}
