//! Bugs planted one after the other, each as a patch of tests/bugs: the simulator must find each within the
//! number of seeds that the patch names, or a check is missing or blind.

use crate::run::{Exit, commit};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What a patch says about itself, above its first file.
struct Bug {
    path: PathBuf,
    name: String,
    found_by: String,
    seeds: String,
    kind: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Plants all bugs, or those whose names begin with `number`.
pub fn run(number: Option<&str>) -> Result<Exit, String> {
    let copy = root().join("target/bugs/tree");
    check_out(&copy)?;
    let (mut rows, mut exit) = (vec![], Exit::Fine);
    for bug in bugs(number.unwrap_or_default())? {
        let row = plant(&bug, &copy)?;
        let is_found = row["found"] == Value::Bool(true);
        println!("{}: {}", bug.name, row["what"].as_str().unwrap_or_default());
        exit = if is_found { exit } else { Exit::Wrong };
        rows.push(row);
    }
    let report = json!({ "commit": commit(), "bugs": rows });
    let folder = root().join("target/evidence");
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join("bugs.json"), format!("{report:#}\n")))
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let found = rows
        .iter()
        .filter(|row| row["found"] == Value::Bool(true))
        .count();
    println!("{found} of {} planted bugs were found", rows.len());
    Ok(exit)
}

fn bugs(prefix: &str) -> Result<Vec<Bug>, String> {
    let folder = root().join("tests/bugs");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "patch"));
    paths.sort();
    let bugs = paths.into_iter().map(|path| {
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let says = |key: &str| {
            let lines = text.lines().take_while(|line| !line.starts_with("---"));
            let mut lines = lines.filter_map(|line| line.strip_prefix(key));
            lines.next().unwrap_or_default().trim().to_owned()
        };
        Ok(Bug {
            name: path
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            found_by: says("Found by:"),
            seeds: says("Seeds:"),
            kind: says("Kind:"),
            path,
        })
    });
    let all: Vec<Bug> = bugs.collect::<Result<_, String>>()?;
    Ok(all
        .into_iter()
        .filter(|bug| bug.name.starts_with(prefix))
        .collect())
}

/// The commit that is checked out here, in a folder of its own.
fn check_out(copy: &Path) -> Result<(), String> {
    let _ = git(
        root(),
        &["worktree", "remove", "--force", &copy.display().to_string()],
    );
    let added = git(
        root(),
        &[
            "worktree",
            "add",
            "--detach",
            "--force",
            &copy.display().to_string(),
            "HEAD",
        ],
    )?;
    success("git worktree add", &added)
}

fn plant(bug: &Bug, copy: &Path) -> Result<Value, String> {
    let patch = bug.path.display().to_string();
    success(&format!("{}: apply", bug.name), &git(copy, &["apply", &patch])?)?;
    let mut args = vec![
        "test",
        "--quiet",
        "--offline",
        "--profile",
        "sim",
        "--all-features",
        "--test",
        "sim",
        "--",
        "batch",
        "--until-found",
        "--seeds",
        &bug.seeds,
    ];
    if bug.kind != "any" {
        args.extend(["--kind", &bug.kind]);
    }
    let ran = Command::new("cargo")
        .args(args)
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", root().join("target/bugs/target"))
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    success(
        &format!("{}: take back", bug.name),
        &git(copy, &["apply", "-R", &patch])?,
    )?;
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let what = said.lines().find(|line| line.starts_with("seed "));
    // A copy that does not build ends in another way than a seed that fails.
    let is_run = said.contains(" seeds of ");
    if !is_run {
        return Err(format!(
            "{} does not build:\n{}",
            bug.name,
            String::from_utf8_lossy(&ran.stderr)
        ));
    }
    Ok(json!({
        "bug": bug.name,
        "must_be_found_by": bug.found_by,
        "within_seeds": bug.seeds,
        "found": what.is_some(),
        "what": what.map_or_else(|| format!("NOT FOUND in {} seeds", bug.seeds), str::to_owned),
    }))
}

fn git(folder: &Path, args: &[&str]) -> Result<Output, String> {
    let ran = Command::new("git").args(args).current_dir(folder).output();
    ran.map_err(|error| format!("git: {error}"))
}

fn success(doing: &str, ran: &Output) -> Result<(), String> {
    match ran.status.success() {
        true => Ok(()),
        false => Err(format!("{doing}: {}", String::from_utf8_lossy(&ran.stderr))),
    }
}
