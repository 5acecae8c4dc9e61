//! What docs/operations.md must have: a row for each alert, links that lead somewhere, steps in their order.

fn page(name: &str) -> String {
    std::fs::read_to_string(format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn the_page_has_a_row_for_each_alert_and_leads_to_parts_that_it_has() {
    let operations = page("docs/operations.md");
    let rules = page("docs/monitoring/creditd.rules.yml");
    let alerts: Vec<&str> = rules
        .lines()
        .filter_map(|line| line.split_once("- alert: "))
        .map(|(_, name)| name)
        .collect();
    assert!(alerts.len() > 15, "{alerts:?}");
    for alert in alerts {
        let row = format!("| `{alert}` |");
        assert_eq!(operations.matches(&row).count(), 1, "{row}");
    }
    let anchor = |line: &str| -> String {
        let letters = line.trim_start_matches(['#', ' ']).chars();
        letters
            .filter(|letter| letter.is_alphanumeric() || *letter == ' ')
            .collect::<String>()
            .to_lowercase()
            .replace(' ', "-")
    };
    let parts: Vec<String> = operations
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(anchor)
        .collect();
    for link in operations
        .split("](#")
        .skip(1)
        .map(|rest| rest.split(')').next().unwrap())
    {
        assert!(parts.iter().any(|part| part == link), "{link} in {parts:?}");
    }
}

/// What the pages call in a row, when a folder must be there before it is used.
#[test]
fn install_makes_the_folders_of_the_database_and_of_backups_before_they_are_used() {
    let operations = page("docs/operations.md");
    let made =
        operations.find("install -d -m 750 -o creditd -g creditd /var/lib/creditd /var/lib/creditd/backups");
    let made = made.unwrap();
    for used in [
        "sudo -u creditd creditd check\n",
        "creditd backup /var/lib/creditd/backups/",
    ] {
        assert!(operations.find(used).unwrap() > made, "{used}");
    }
}
