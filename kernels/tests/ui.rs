//! What the compiler says of a wrong declaration: the message and the token it points at.

#[test]
fn wrong_declarations_are_explained_at_their_tokens() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
