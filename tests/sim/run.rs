//! One seed: everything happens, then the faults end, and whatever must hold is asked.
