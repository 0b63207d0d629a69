//! A configuration as TOML has it: types only, with the places of values; `check` has the rules.

use serde::Deserialize;
use toml::Spanned;

pub type Text = Option<Spanned<String>>;
pub type Number = Option<Spanned<i64>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub name: Text,
    pub interfaces: Option<Spanned<Vec<Spanned<String>>>>,
    pub policy: Text,
    pub interval: Text,
    pub flows: Number,
    pub drain_timeout: Text,
    #[serde(default)]
    pub service: Vec<Spanned<Service>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    pub name: Text,
    pub address: Text,
    pub port: Number,
    pub protocol: Text,
    pub method: Text,
    pub affinity: Text,
    pub choices: Number,
    pub tunnel_source: Text,
    #[serde(default)]
    pub allow_small_mtu: bool,
    pub health: Option<Spanned<Health>>,
    #[serde(default)]
    pub backend: Vec<Spanned<Backend>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Health {
    pub check: Text,
    pub port: Number,
    pub path: Text,
    pub host: Text,
    pub status: Text,
    pub interval: Text,
    pub timeout: Text,
    pub rise: Number,
    pub fall: Number,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    pub name: Text,
    pub address: Text,
    pub weight: Number,
}
