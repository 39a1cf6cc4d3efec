//! The limits that kernels are measured against: nothing is skipped.

use quantsmith_kernels::cpu;
use quantsmith_kernels::ops::roof::{READ_STEP, roof};

#[test]
fn every_byte_is_read_and_the_product_is_right() {
    for tier in cpu::supported() {
        let set = roof::Set::new(tier);
        let mut bytes = vec![0u8; 4 * READ_STEP];
        let nothing = set.read(&bytes);
        for at in [0, 63, READ_STEP - 1, READ_STEP, 4 * READ_STEP - 1] {
            bytes[at] = 1;
            assert_ne!(set.read(&bytes), nothing, "byte {at} on {tier:?}");
            bytes[at] = 0;
        }
        assert_ne!(set.multiply(2), 0, "{tier:?}");
    }
}
