//! What each subcommand needs, as `batchwise_bpf::features` has it: the tables of the doctor's page.

use batchwise_bpf::features::{FEATURES, Feature, Need, Subcommand, Version};

use super::hold;

fn linux((major, minor): Version) -> String {
    format!("{major}.{minor}")
}

/// The smallest kernels.
fn smallest() -> String {
    let row = |s: Subcommand| format!("| `{s}` | {} |\n", linux(s.smallest_kernel()));
    "| subcommand | Linux |\n|---|---|\n".to_owned() + &Subcommand::ALL.map(row).concat()
}

/// Who uses the feature so, and what for if that is said.
fn users(feature: &Feature, need: Need) -> String {
    let users = feature.users.iter().filter(|u| u.need == need);
    let user = |u: &batchwise_bpf::features::User| match u.purpose {
        "" => format!("`{}`", u.subcommand),
        purpose => format!("`{}`: {purpose}", u.subcommand),
    };
    users.map(user).collect::<Vec<_>>().join("; ")
}

fn features() -> String {
    let row = |f: &Feature| {
        let since = f.since.map(linux).unwrap_or_default();
        let (needed, used) = (users(f, Need::Essential), users(f, Need::Optional));
        format!("| {} | {since} | {needed} | {used} |\n", f.name)
    };
    "| check | Linux | cannot do without | does less without |\n|---|---|---|---|\n".to_owned()
        + &FEATURES.iter().map(row).collect::<String>()
}

#[test]
fn the_doctors_page_is_what_the_features_say() {
    let sections = [("smallest", smallest()), ("features", features())];
    hold("docs/guide/doctor.md", &sections);
}
