//! Bugs planted one after the other: the simulator must find each within its number of seeds, or a check is
//! missing or blind.

use crate::run::Exit;

pub fn run(_number: Option<&str>) -> Result<Exit, String> {
    Err("no bug is planted yet".to_owned())
}
