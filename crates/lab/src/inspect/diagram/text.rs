//! The diagram as a tree of lines: memory at the top, drives at the leaves, each line with its link
//! towards memory.

use crate::inspect::Inspection;
use crate::inspect::topology::flow::usable;
use crate::inspect::topology::{Link, Node, Place};
use crate::source::natural;

const BAR: usize = 10;

/// A place, its link towards memory, what that carries, how much of it is used.
type Line = [String; 4];

pub fn draw(inspection: &Inspection) -> String {
    let topology = &inspection.topology;
    let mut lines = Vec::new();
    for (at, node) in topology.nodes.iter().enumerate() {
        if node.place == Place::Memory {
            below(inspection, at, 0, &mut lines);
        }
    }
    let width = |at: usize| lines.iter().map(|it| it[at].chars().count()).max().unwrap_or(0);
    let (a, b, c) = (width(0), width(1), width(2));
    let told = |[name, standard, carries, used]: &Line| {
        let text = format!("  {name:<a$}  {standard:<b$}  {carries:>c$}  {used}");
        format!("{}\n", text.trim_end())
    };
    lines.iter().map(told).collect()
}

fn below(inspection: &Inspection, at: usize, depth: usize, lines: &mut Vec<Line>) {
    let topology = &inspection.topology;
    let node = &topology.nodes[at];
    let indent = "  ".repeat(depth);
    if node.place == Place::Socket {
        // Its link into its own memory is the memory's line; one to another socket stands among the
        // notes.
        lines.push([
            format!("{indent}{}", name(node)),
            String::new(),
            String::new(),
            String::new(),
        ]);
    } else {
        let own = topology.links.iter().enumerate().filter(|(_, link)| link.from == Some(at));
        for (order, (index, link)) in own.enumerate() {
            let name = if order == 0 { format!("{indent}{}", name(node)) } else { String::new() };
            lines.push(line(inspection, name, index, link));
        }
    }
    let mut sources: Vec<usize> =
        topology.links.iter().filter(|it| it.to == Some(at)).filter_map(|it| it.from).collect();
    // Sockets side by side belong to their memory, not below each other.
    sources.retain(|from| topology.nodes[*from].place < node.place);
    sources.sort_by_key(|from| natural(&topology.nodes[*from].id));
    for from in sources {
        below(inspection, from, depth + 1, lines);
    }
}

fn name(node: &Node) -> String {
    match node.place {
        Place::Drives if node.count > 1 => {
            format!("{} x {}  {}", node.count, node.title, node.detail)
        }
        Place::Drives | Place::Controller | Place::Switch => {
            format!("{}  {}", node.title, node.detail)
        }
        Place::Expander => node.detail.clone(),
        Place::Socket => format!("{}  {}", node.id, node.detail),
        Place::Memory => node.id.clone(),
    }
}

fn line(inspection: &Inspection, name: String, index: usize, link: &Link) -> Line {
    let flow = inspection.telling_flow();
    let standard = link.standard.clone();
    let Some((all, capacity)) = link.capacity.zip(usable(link, flow.passes)) else {
        return [name, standard, "?".to_owned(), String::new()];
    };
    let share = flow.by_link[index].share_of(capacity);
    let full = (0..BAR).take_while(|step| (*step as f64 + 0.5) / (BAR as f64) < share).count();
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
    let mark = if flow.narrowest.contains(&index) { "  <-- narrowest" } else { "" };
    let all = all.to_string();
    let carries = match link.is_memory() {
        true if flow.passes > 1 => format!("{all} : {} passes", flow.passes),
        true => all,
        false => capacity.to_string(),
    };
    [name, standard, carries, format!("{bar} {:>3.0} %{mark}", share * 100.0)]
}
