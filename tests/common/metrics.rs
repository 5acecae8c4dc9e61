//! Reads a page of metrics as Prometheus does.

use std::collections::{BTreeMap, BTreeSet};

/// One series: its name, its labels in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

/// A page of metrics.
#[derive(Debug)]
pub struct Scrape {
    pub values: BTreeMap<Series, f64>,
}

impl Scrape {
    /// Every line must be one of the text format's (version 0.0.4).
    #[track_caller]
    pub fn parse(page: &str) -> Self {
        let mut values = BTreeMap::new();
        let mut described = BTreeSet::new();
        for line in page.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (kind, name, rest) = (words.next(), words.next().unwrap(), words.next().unwrap());
                assert!(matches!(kind, Some("HELP" | "TYPE")), "{line}");
                if kind == Some("TYPE") {
                    assert!(described.insert(name.to_owned()), "described twice: {line}");
                    assert!(matches!(rest, "gauge" | "counter" | "histogram"), "{line}");
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let labels = labels
                .strip_suffix('}')
                .unwrap()
                .split("\",")
                .filter(|label| !label.is_empty());
            let label = |label: &str| {
                let (name, value) = label.split_once("=\"").unwrap();
                (name.to_owned(), value.trim_end_matches('"').to_owned())
            };
            let series = Series {
                name: name.to_owned(),
                labels: labels.map(label).collect(),
            };
            assert!(
                described.contains(&family(name, &described)),
                "not described: {line}"
            );
            assert!(
                values.insert(series, value.parse().unwrap()).is_none(),
                "twice: {line}"
            );
        }
        Self { values }
    }

    /// The value of the one series of that name that has these labels, whatever others it has.
    #[track_caller]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |series: &Series| {
            series.name == name
                && labels
                    .iter()
                    .all(|(name, value)| series.labels.get(*name).is_some_and(|known| known == value))
        };
        let found: Vec<_> = self.values.iter().filter(|(series, _)| has(series)).collect();
        assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?}");
        *found[0].1
    }

    /// All names, those of a histogram's parts included.
    pub fn names(&self) -> BTreeSet<&str> {
        self.values.keys().map(|series| series.name.as_str()).collect()
    }
}

fn family(name: &str, described: &BTreeSet<String>) -> String {
    let part = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
        name.strip_suffix(suffix)
            .filter(|family| described.contains(*family))
    });
    part.unwrap_or(name).to_owned()
}
