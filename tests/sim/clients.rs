//! Merchants: they ask the API, ask again, race and give up, and remember every answer.
