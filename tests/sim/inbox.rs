//! Senders of webhooks: good ones, forgers, and those that say it again.
