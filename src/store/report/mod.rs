//! Reads for people: lists, balances and stories. They decide nothing and write nothing, and each page of a
//! list costs what the page holds, not what the table holds.

mod balances;
mod callbacks;
mod chains;
mod endpoints;
mod events;
mod ids;
mod inbox;
mod invoices;
mod lists;
mod readings;
mod restores;
mod story;

pub use balances::Balance;
pub use callbacks::{AttemptRow, Blocker, DeliveryFilter, DeliveryRow};
pub use chains::ChainStatus;
pub use endpoints::EndpointFilter;
#[cfg(test)]
pub(super) use endpoints::endpoints_query;
pub use events::{EventAbout, FrozenEvent};
pub use inbox::{AsideRow, InboxFilter, InboxRow};
pub use invoices::InvoiceFilter;
pub use lists::{AddressRow, CreditRow, Filter, Listed, Page};
pub use readings::{ChainReadings, EndpointReadings, Readings};
pub use restores::{RestoreReport, ToldAnew};
pub use story::{AuditRow, CreditStory, DepositStory, EventRow, InputRow, OutputStory, TxStory};
