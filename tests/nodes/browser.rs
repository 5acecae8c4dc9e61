//! A real browser without a window, driven by its own protocol over a pipe: no port, no driver program. It
//! ends with its value, and with the test.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use base64::Engine as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::wait::{PATIENCE, wait_until};

/// Commands come in at descriptor 3 and answers go out at 4, each ended by a zero byte.
const START: &str = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >&2"#;

/// How wide and high a window is, and whether its user likes it dark.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    pub width: u32,
    pub height: u32,
    pub is_dark: bool,
}

/// One window of it.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    commands: u64,
    /// What it asked for, since it was opened.
    pub requested: BTreeSet<String>,
    /// What it complains of: errors of scripts, and what the policy of a page did not let through.
    pub complaints: Vec<String>,
    profile: TempDir,
}

impl Browser {
    /// Starts `CHROMIUM_EXE`, or the `chromium` of this machine.
    #[track_caller]
    pub fn start() -> Self {
        let exe = std::env::var("CHROMIUM_EXE").unwrap_or_else(|_| "chromium".to_owned());
        let profile = tempfile::Builder::new()
            .prefix("creditd-browser-")
            .tempdir()
            .unwrap();
        let mut child = Command::new("sh")
            .args([
                "-c",
                START,
                &exe,
                "--headless",
                "--no-sandbox",
                "--remote-debugging-pipe",
            ])
            .args([
                "--no-first-run",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--disable-extensions",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
            ])
            .args([
                "--no-proxy-server",
                "--hide-scrollbars",
                "--force-color-profile=srgb",
            ])
            .arg(format!(
                "--user-data-dir={}",
                profile.path().join("profile").display()
            ))
            .arg("about:blank")
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(profile.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let (sender, from) = mpsc::channel();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        // It ends with the pipe, and that with the browser.
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            while answers.read_until(0, &mut bytes).is_ok_and(|count| count > 0) {
                bytes.pop();
                let _ = sender.send(serde_json::from_slice(&bytes).unwrap_or_default());
                bytes.clear();
            }
        });
        let mut browser = Self {
            to: child.stdin.take().unwrap(),
            child,
            from,
            session: String::new(),
            commands: 0,
            requested: BTreeSet::new(),
            complaints: Vec::new(),
            profile,
        };
        let made = browser.command("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": made["targetId"], "flatten": true});
        let attached = browser.command("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Network", "Runtime", "Log"] {
            browser.command(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Gives a command, which must succeed, and waits for its answer.
    #[track_caller]
    pub fn command(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.commands += 1;
        let id = self.commands;
        let mut command = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            command["sessionId"] = json!(self.session);
        }
        let sent = write!(self.to, "{command}\0").and_then(|()| self.to.flush());
        sent.unwrap_or_else(|error| panic!("{method}: {error}\n{}", self.log()));
        loop {
            let Ok(message) = self.from.recv_timeout(PATIENCE) else {
                panic!("the browser does not answer {method}:\n{}", self.log());
            };
            if message["id"] == id {
                return match message["error"].is_null() {
                    true => Ok(message["result"].clone()),
                    false => Err(message["error"].clone()),
                };
            }
            self.note(&message["method"], &message["params"]);
        }
    }

    fn note(&mut self, method: &Value, params: &Value) {
        match method.as_str() {
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap().to_owned();
                self.requested.insert(url);
            }
            Some("Runtime.exceptionThrown" | "Log.entryAdded") => self.complaints.push(params.to_string()),
            _ => {}
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.profile.path().join("log")).unwrap_or_default()
    }

    /// What the window looks like from now on.
    pub fn set_screen(&mut self, screen: Screen) {
        let scheme = if screen.is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.command("Emulation.setEmulatedMedia", json!({"features": features}));
        let is_phone = screen.width < 600;
        let size = json!({
            "width": screen.width, "height": screen.height, "deviceScaleFactor": 2, "mobile": is_phone,
        });
        self.command("Emulation.setDeviceMetricsOverride", size);
    }

    /// Whether scripts run in pages that are opened from now on.
    pub fn set_scripts(&mut self, are_on: bool) {
        self.command("Emulation.setScriptExecutionDisabled", json!({"value": !are_on}));
    }

    /// Opens a page, and waits until it is there.
    #[track_caller]
    pub fn open(&mut self, url: &str) {
        let opened = self.command("Page.navigate", json!({"url": url}));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        wait_until(url, PATIENCE, || {
            let is_there = "document.readyState === 'complete' && location.href !== 'about:blank'";
            (self.try_eval(is_there)? == true).then_some(())
        });
    }

    /// What an expression is in the page.
    #[track_caller]
    pub fn eval(&mut self, expression: &str) -> Value {
        let value = self.try_eval(expression);
        value.unwrap_or_else(|| panic!("not to be had: {expression}"))
    }

    /// The same; `None` where it fails, as everything does between two pages.
    #[track_caller]
    fn try_eval(&mut self, expression: &str) -> Option<Value> {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", params).ok()?;
        let is_good = answer["exceptionDetails"].is_null();
        is_good.then(|| answer["result"]["value"].clone())
    }

    /// The text that a reader sees.
    #[track_caller]
    pub fn text(&mut self) -> String {
        self.eval("document.body.innerText").as_str().unwrap().to_owned()
    }

    /// Waits until a reader sees these words.
    #[track_caller]
    pub fn wait_text(&mut self, words: &str) {
        wait_until(&format!("the page says {words:?}"), PATIENCE, || {
            let text = self.try_eval("document.body.innerText")?;
            text.as_str()?.contains(words).then_some(())
        });
    }

    /// What the window shows as a picture: PNG.
    #[track_caller]
    pub fn picture(&mut self) -> Vec<u8> {
        let shot = self.command("Page.captureScreenshot", json!({}));
        let text = shot["data"].as_str().unwrap();
        base64::engine::general_purpose::STANDARD.decode(text).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
