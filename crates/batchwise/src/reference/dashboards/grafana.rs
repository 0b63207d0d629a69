//! The JSON that Grafana imports: schema version 39, of Grafana 10.4 and newer.

use serde_json::{Value, json};

use super::{Dashboard, Draw, Panel, Row, Unit, Variable};

/// Columns of a dashboard.
const WIDTH: usize = 24;

/// The whole file.
pub fn json(dashboard: &Dashboard) -> String {
    let agent = dashboard.agent;
    let all = json!({
        "uid": format!("batchwise-{agent}"),
        "title": format!("batchwise {agent}"),
        "description": dashboard.about,
        "tags": ["batchwise"],
        "schemaVersion": 39,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "templating": {"list": variables(dashboard)},
        "annotations": {"list": [alerts()]},
        "links": [{
            "title": "batchwise", "type": "dashboards", "tags": ["batchwise"], "asDropdown": true,
            "includeVars": false, "keepTime": true, "targetBlank": false, "icon": "external link",
            "tooltip": "", "url": ""
        }],
        "panels": panels(dashboard),
    });
    format!("{all:#}\n")
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn variables(dashboard: &Dashboard) -> Vec<Value> {
    let data = json!({
        "name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus",
    });
    let of_label = |variable: &Variable| {
        let (label, series) = (variable.label, dashboard.query(variable.of));
        let query = format!("label_values({series}, {label})");
        let (many, current) = match variable.first {
            None => (true, json!({"text": ["All"], "value": ["$__all"]})),
            Some(first) => (false, json!({"text": first, "value": first})),
        };
        json!({
            "name": label, "type": "query", "datasource": source(),
            "definition": query, "query": {"query": query, "refId": label},
            "refresh": 2, "sort": 1, "multi": many, "includeAll": many, "current": current,
        })
    };
    let labels = dashboard.variables.iter().map(of_label);
    [data].into_iter().chain(labels).collect()
}

/// Marks the times at which alerts fired.
fn alerts() -> Value {
    json!({
        "name": "alerts", "datasource": source(), "enable": true, "hide": false, "iconColor": "red",
        "expr": r#"ALERTS{alertname=~"Batchwise.*", alertstate="firing", instance=~"$instance"}"#,
        "titleFormat": "{{alertname}}", "textFormat": "{{service}} {{backend}} {{instance}}",
        "step": "30s"
    })
}

/// Rows one below the other; panels of a row share its width.
fn panels(dashboard: &Dashboard) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    let mut y = 0;
    for Row { title, panels } in dashboard.rows {
        let place = json!({"x": 0, "y": y, "w": WIDTH, "h": 1});
        let id = all.len() + 1;
        all.push(json!({
            "id": id, "type": "row", "title": title, "collapsed": false, "panels": [],
            "gridPos": place
        }));
        y += 1;
        let lines = panels.len().div_ceil(4);
        for line in panels.chunks(panels.len().div_ceil(lines)) {
            let small = |panel: &Panel| matches!(panel.draw, Draw::Value | Draw::Name);
            let height = if line.iter().all(small) { 4 } else { 8 };
            let width = WIDTH / line.len();
            for (n, shown) in line.iter().enumerate() {
                let place = json!({"x": n * width, "y": y, "w": width, "h": height});
                let id = all.len() + 1;
                all.push(panel(dashboard, shown, id, place));
            }
            y += height;
        }
    }
    all
}

fn panel(dashboard: &Dashboard, panel: &Panel, id: usize, place: Value) -> Value {
    let (kind, options, custom) = drawing(panel);
    let target = |(letter, (query, legend)): (char, &(&str, &str))| {
        let format = match panel.draw {
            Draw::Heatmap => "heatmap",
            _ => "time_series",
        };
        json!({
            "refId": letter, "datasource": source(), "expr": dashboard.query(query),
            "legendFormat": legend, "format": format, "range": true
        })
    };
    let targets: Vec<_> = ('A'..).zip(panel.queries).map(target).collect();
    let unit = match panel.unit {
        Unit::Seconds => "s",
        Unit::Share => "percentunit",
        Unit::Number => "short",
        Unit::RequestsPerSecond => "reqps",
        Unit::PacketsPerSecond => "pps",
        Unit::EventsPerSecond => "ops",
        Unit::BytesPerSecond => "Bps",
        Unit::Bytes => "bytes",
    };
    let mut defaults = json!({
        "unit": unit, "custom": custom, "mappings": mappings(panel.draw),
        "color": {"mode": color_mode(panel)},
        "thresholds": {"mode": "absolute", "steps": steps(panel)}
    });
    if matches!(panel.unit, Unit::Share) {
        defaults["min"] = json!(0);
    }
    json!({
        "id": id, "type": kind, "title": panel.title, "description": panel.help,
        "datasource": source(), "gridPos": place, "targets": targets, "options": options,
        "fieldConfig": {"defaults": defaults, "overrides": []}
    })
}

/// The kind of the panel, its options, and how its fields are drawn.
fn drawing(panel: &Panel) -> (&'static str, Value, Value) {
    let legend = json!({
        "displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []
    });
    let tooltip = json!({"mode": "multi", "sort": "desc"});
    match panel.draw {
        Draw::Lines | Draw::Stacked => {
            let stacked = panel.draw == Draw::Stacked;
            let limits = if panel.limits.is_empty() {
                "off"
            } else {
                "dashed"
            };
            let custom = json!({
                "drawStyle": "line", "lineWidth": 1, "showPoints": "auto", "spanNulls": false,
                "fillOpacity": if stacked { 40 } else { 5 },
                "stacking": {"mode": if stacked { "normal" } else { "none" }, "group": "A"},
                "thresholdsStyle": {"mode": limits}
            });
            (
                "timeseries",
                json!({"legend": legend, "tooltip": tooltip}),
                custom,
            )
        }
        Draw::Value | Draw::Name => {
            let text = if panel.draw == Draw::Name {
                "name"
            } else {
                "auto"
            };
            let options = json!({
                "reduceOptions": {"values": false, "calcs": ["lastNotNull"], "fields": ""},
                "colorMode": "value", "graphMode": "none", "justifyMode": "auto",
                "orientation": "auto", "textMode": text, "wideLayout": true,
                "showPercentChange": false, "percentChangeColorMode": "standard"
            });
            ("stat", options, json!({}))
        }
        Draw::Heatmap => {
            let options = json!({
                "calculate": false, "cellGap": 1, "showValue": "never",
                "color": {
                    "mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5,
                    "fill": "dark-orange", "reverse": false
                },
                "filterValues": {"le": 1e-9}, "rowsFrame": {"layout": "auto"},
                "yAxis": {"unit": "s", "axisPlacement": "left", "reverse": false},
                "legend": {"show": true}, "exemplars": {"color": "red"},
                "tooltip": {"mode": "single", "yHistogram": true, "showColorScale": false}
            });
            ("heatmap", options, json!({}))
        }
        Draw::States(_) => {
            let options = json!({
                "mergeValues": true, "showValue": "auto", "alignValue": "left", "rowHeight": 0.8,
                "legend": legend, "tooltip": {"mode": "single", "sort": "none"}
            });
            (
                "state-timeline",
                options,
                json!({"lineWidth": 0, "fillOpacity": 70}),
            )
        }
    }
}

fn color_mode(panel: &Panel) -> &'static str {
    match panel.draw {
        Draw::Value | Draw::Name | Draw::States(_) => "thresholds",
        Draw::Lines | Draw::Stacked | Draw::Heatmap => "palette-classic",
    }
}

fn mappings(draw: Draw) -> Vec<Value> {
    let Draw::States([(zero, of_zero), (one, of_one)]) = draw else {
        return Vec::new();
    };
    let options = json!({
        "0": {"text": zero, "color": of_zero, "index": 0},
        "1": {"text": one, "color": of_one, "index": 1}
    });
    vec![json!({"type": "value", "options": options})]
}

fn steps(panel: &Panel) -> Vec<Value> {
    let step = |(from, color): &(f64, &str)| {
        let value = if *from == f64::MIN {
            Value::Null
        } else {
            json!(from)
        };
        json!({"value": value, "color": color})
    };
    match panel.limits {
        [] => vec![step(&(f64::MIN, "green"))],
        limits => limits.iter().map(step).collect(),
    }
}
