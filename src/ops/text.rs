//! Metrics with the values that they have at this scrape. Their library keeps values between scrapes; ours
//! come from elsewhere each time, in the order in which they are to be shown.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use std::collections::HashMap;

pub(super) use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;

/// Label names and values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Every name begins with it.
const PREFIX: &str = "creditd";

/// One value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Goes up and down.
    Gauge(i64),
    /// A span, which goes up and down too.
    Seconds(f64),
    /// Only rises.
    Counter(u64),
    /// Counts by size.
    Histogram {
        /// Of all sizes.
        sum: f64,
        /// How many in all.
        count: u64,
        /// Upper bound, and how many are at most as large and larger than the bound before.
        buckets: Vec<(f64, u64)>,
    },
}

/// One name with all its values, which are of one kind.
#[derive(Debug)]
struct Rows {
    kind: MetricType,
    rows: Vec<(Labels, Value)>,
}

impl EncodeMetric for Rows {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        type NoExemplar<'a> = Option<&'a Exemplar<NoLabelSet, f64>>;
        type NoExemplars<'a> = Option<&'a HashMap<usize, Exemplar<NoLabelSet, f64>>>;
        for (labels, value) in &self.rows {
            let mut row = encoder.encode_family(labels)?;
            match value {
                Value::Gauge(value) => row.encode_gauge(value)?,
                Value::Seconds(value) => row.encode_gauge(value)?,
                Value::Counter(value) => row.encode_counter(value, NoExemplar::None)?,
                Value::Histogram { sum, count, buckets } => {
                    row.encode_histogram(*sum, *count, buckets, NoExemplars::None)?;
                }
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

/// A page of metrics under way.
pub(super) struct Page(Registry);

impl Page {
    pub(super) fn new() -> Page {
        Page(Registry::with_prefix(PREFIX))
    }

    /// A gauge without labels.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: i64) {
        self.gauges(name, help, vec![(Labels::new(), value)]);
    }

    /// A gauge per set of labels.
    pub(super) fn gauges(&mut self, name: &str, help: &str, rows: Vec<(Labels, i64)>) {
        let rows = rows
            .into_iter()
            .map(|(labels, value)| (labels, Value::Gauge(value)));
        self.add(name, help, MetricType::Gauge, rows.collect());
    }

    /// A span per set of labels.
    pub(super) fn spans(&mut self, name: &str, help: &str, rows: Vec<(Labels, f64)>) {
        let rows = rows
            .into_iter()
            .map(|(labels, value)| (labels, Value::Seconds(value)));
        self.add(name, help, MetricType::Gauge, rows.collect());
    }

    /// A counter per set of labels; `_total` is added to its name.
    pub(super) fn counters(&mut self, name: &str, help: &str, rows: Vec<(Labels, u64)>) {
        let rows = rows
            .into_iter()
            .map(|(labels, value)| (labels, Value::Counter(value)));
        self.add(name, help, MetricType::Counter, rows.collect());
    }

    /// A histogram per set of labels.
    pub(super) fn histograms(&mut self, name: &str, help: &str, rows: Vec<(Labels, Value)>) {
        self.add(name, help, MetricType::Histogram, rows);
    }

    fn add(&mut self, name: &str, help: &str, kind: MetricType, rows: Vec<(Labels, Value)>) {
        self.0.register(name, help, Rows { kind, rows });
    }

    /// The page as it goes out.
    pub(super) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, &self.0)?;
        Ok(text)
    }
}
