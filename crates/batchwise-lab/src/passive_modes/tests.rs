use super::*;

#[test]
#[ignore]
fn explore() {
    let runs = everything(3, 20).unwrap();
    println!("{}", markdown(&points(&runs)));
}
