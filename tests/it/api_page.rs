//! The lines of docs/api.md, run as they stand there.

use std::path::Path;
use std::process::Command;

use crate::common::api::{fill_pool, with_api};
use crate::common::daemon::Daemon;
use crate::common::fake_chain::FakeNode;

/// The first shell block of the page, a command a line.
fn commands() -> Vec<String> {
    let page = include_str!("../../docs/api.md");
    let (_, rest) = page.split_once("```sh\n").unwrap();
    let (block, _) = rest.split_once("```").unwrap();
    let whole = block.replace("\\\n", " ");
    whole.lines().map(str::to_owned).collect()
}

#[test]
fn every_command_of_the_page_does_what_it_is_there_for() {
    let node = FakeNode::regtest(1);
    let daemon = Daemon::start(&with_api(&node.stub));
    daemon.wait_height(1);
    fill_pool(&daemon, 5);
    let folder = Path::new(env!("CARGO_BIN_EXE_creditd")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let (mut key, mut said) = (String::new(), Vec::new());
    for command in commands() {
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
            .args(["-c", &command])
            .env("PATH", &path)
            .env("CREDITD_CONFIG", daemon.config_file())
            .env("KEY", &key)
            .env("API", format!("http://127.0.0.1:{}", daemon.api_port()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
        said.push(String::from_utf8(output.stdout).unwrap());
    }
    assert_eq!(said.len(), 8, "every command ran");
    assert!(said[2].contains("\"merchant\":\"shop\""), "{}", said[2]);
    assert!(said[3].contains("\"amount_base\":\"29000000\""), "{}", said[3]);
    for list in &said[4..6] {
        assert!(list.contains("\"order-1\""), "{list}");
    }
    assert!(said[6].contains("/v1/events/stream"));
    assert!(said[7].contains("web"), "{}", said[7]);
}
