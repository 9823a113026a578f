//! `vnicctl top`: adapters, ports, queue pairs and data cores with their rates, as they change.

mod args;
mod rows;

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::time::SystemTime;

use vnic_control::v1;
use vnic_control::v1::rdma_service_client::RdmaServiceClient;

use super::client::{Client, resource};
use super::look::{Growth, Look, Looker};
use super::output::{self, Output};
use super::rehearsal::Channel;
use super::screen::paint::{self, Cell, Colour, Paper};
use super::screen::terminal::{self, Terminal};
use super::{Failure, paging, text};
use crate::names::ADAPTERS;
use args::Section;
pub use args::TopArgs;
use rows::{Column, Core, Owner, QueuePair};

/// Rows of a section where no screen limits them.
const LIMIT_DEFAULT: usize = 10;

/// What is shown of two looks; a section that is not shown is absent.
#[derive(Debug, Default, serde::Serialize)]
struct Page {
    /// When the later look was.
    time: String,
    interval_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    adapters: Option<Vec<Owner>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ports: Option<Vec<Owner>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_pairs: Option<Vec<QueuePair>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<Vec<Core>>,
}

/// Reads what is shown.
struct Reader<'a> {
    args: &'a TopArgs,
    looker: Looker,
    rdma: RdmaServiceClient<Channel>,
}

impl Reader<'_> {
    /// A look, and the queue pairs if they are shown.
    async fn look(&mut self) -> Result<(Look, Vec<v1::QueuePair>), Failure> {
        let mut look = self.looker.look().await?;
        let only = self.args.adapter.as_ref().map(|name| resource(ADAPTERS, name));
        if let Some(only) = &only {
            look.adapters.retain(|a| a.name == *only);
            if look.adapters.is_empty() {
                let name = crate::names::last(only);
                return Err(Failure::Failed(format!(
                    "there is no adapter {name}: see vnicctl adapter list"
                )));
            }
        }
        if !self.args.shows(Section::Qps) {
            return Ok((look, Vec::new()));
        }
        let parent = only.unwrap_or_default();
        let request = v1::ListQueuePairsRequest {
            parent,
            ..Default::default()
        };
        let pairs = paging::list(&mut self.rdma, request).await?;
        Ok((look, pairs.queue_pairs))
    }
}

impl Page {
    fn new(args: &TopArgs, before: &(Look, Vec<v1::QueuePair>), now: &(Look, Vec<v1::QueuePair>)) -> Page {
        let growth = Growth::new(&before.0, &now.0);
        let mut page = Page {
            time: text::time(Some(SystemTime::now().into())),
            interval_ms: u64::try_from(growth.elapsed().as_millis()).unwrap_or(u64::MAX),
            ..Page::default()
        };
        if args.shows(Section::Adapters) {
            let mut all = rows::adapters(&growth, &now.0.adapters);
            rows::sort_owners(&mut all, args.sort);
            page.adapters = Some(all);
        }
        if args.shows(Section::Ports) {
            let mut all = rows::ports(&growth, &now.0.ports);
            rows::sort_owners(&mut all, args.sort);
            page.ports = Some(all);
        }
        if args.shows(Section::Qps) {
            let mut all = rows::queue_pairs(&growth, &before.1, &now.1);
            rows::sort_queue_pairs(&mut all, args.sort);
            page.queue_pairs = Some(all);
        }
        if args.shows(Section::Cores) {
            let mut all = rows::cores(&growth);
            rows::sort_cores(&mut all, args.sort);
            page.cores = Some(all);
        }
        page
    }

    /// Leaves only the first rows of each section.
    fn limit(&mut self, n: usize) {
        for all in [&mut self.adapters, &mut self.ports].into_iter().flatten() {
            all.truncate(n);
        }
        if let Some(all) = &mut self.queue_pairs {
            all.truncate(n);
        }
        if let Some(all) = &mut self.cores {
            all.truncate(n);
        }
    }

    /// Sections that have rows: headings, and the rows.
    fn sections(&self) -> Vec<(Vec<&'static str>, Vec<Vec<Cell>>)> {
        fn section<T>(columns: &[Column<T>], rows: Option<&Vec<T>>) -> (Vec<&'static str>, Vec<Vec<Cell>>) {
            let cells = |row: &T| columns.iter().map(|(_, cell)| cell(row)).collect();
            let headings = columns.iter().map(|(heading, _)| *heading);
            (
                headings.collect(),
                rows.into_iter().flatten().map(cells).collect(),
            )
        }
        let mut all = vec![
            section(rows::CORES, self.cores.as_ref()),
            section(rows::ADAPTERS, self.adapters.as_ref()),
            section(rows::PORTS, self.ports.as_ref()),
            section(rows::QUEUE_PAIRS, self.queue_pairs.as_ref()),
        ];
        all.retain(|(_, rows)| !rows.is_empty());
        all
    }

    /// Lines of the page. `limit` is the most rows of a section, `height` that of lines.
    fn lines(&self, paper: &Paper, limit: Option<usize>, height: Option<usize>) -> Vec<String> {
        let sections = self.sections();
        let counts: Vec<usize> = sections.iter().map(|(_, rows)| rows.len()).collect();
        let most = match (limit, height) {
            (Some(limit), _) => vec![limit; counts.len()],
            (None, None) => vec![LIMIT_DEFAULT; counts.len()],
            // A line for the title, and for each section an empty one, its headings, and what is left out.
            (None, Some(height)) => share(height.saturating_sub(1 + 3 * counts.len()), &counts),
        };
        let title = format!("vnicctl top  {}  every {} ms", self.time, self.interval_ms);
        let mut lines = vec![paper.line(&[Cell::new(title, Colour::Bold)])];
        for ((headings, rows), most) in sections.iter().zip(most) {
            lines.push(String::new());
            let shown = &rows[..most.min(rows.len())];
            lines.extend(paper.table(headings, shown));
            let more = rows.len() - shown.len();
            if more > 0 {
                lines.push(paper.line(&[Cell::plain(format!("and {more} more"))]));
            }
        }
        if let Some(height) = height {
            lines.truncate(height);
        }
        lines
    }
}

/// Shares lines among sections with so many rows: what one does not need, others get.
fn share(mut lines: usize, rows: &[usize]) -> Vec<usize> {
    let mut shares = vec![0; rows.len()];
    loop {
        let mut given = false;
        for (share, rows) in shares.iter_mut().zip(rows) {
            if *share < *rows && lines > 0 {
                *share += 1;
                lines -= 1;
                given = true;
            }
        }
        if !given {
            return shares;
        }
    }
}

/// Shows pages until there are enough, or the user ends it.
pub async fn run(args: TopArgs, client: &Client, out: &Output) -> Result<(), Failure> {
    let mut reader = Reader {
        args: &args,
        looker: Looker::new(client).await?,
        rdma: client.rdma().await?,
    };
    if args.iterations.is_none() && !out.is_json() && io::stdout().is_terminal() {
        return live(&mut reader).await;
    }
    let mut before = reader.look().await?;
    let mut left = args.iterations.unwrap_or(u64::MAX);
    while left > 0 {
        left -= 1;
        tokio::time::sleep(args.interval).await;
        let now = reader.look().await?;
        let mut page = Page::new(&args, &before, &now);
        if out.is_json() {
            if let Some(n) = args.limit {
                page.limit(n);
            }
            let value = serde_json::to_value(&page).map_err(|e| Failure::Failed(e.to_string()))?;
            output::print(&format!("{value}\n"))?;
        } else {
            let paper = Paper {
                width: terminal::size(io::stdout().as_fd()).map(|(width, _)| width),
                colours: false,
            };
            let end = if left > 0 { "\n" } else { "" };
            let text = page.lines(&paper, args.limit, None).join("\n");
            output::print(&format!("{text}\n{end}"))?;
        }
        before = now;
    }
    Ok(())
}

/// Shows pages on the terminal, each in the place of the one before.
async fn live(reader: &mut Reader<'_>) -> Result<(), Failure> {
    let args = reader.args;
    // What is wrong with the request is said before the screen is taken.
    let mut before = reader.look().await?;
    let mut terminal = Terminal::new()?;
    terminal.show(&["vnicctl top: the first rates come after two looks; q ends it".to_owned()])?;
    let no_color = std::env::var_os("NO_COLOR");
    loop {
        let next = async {
            tokio::time::sleep(args.interval).await;
            reader.look().await
        };
        let now = tokio::select! {
            () = terminal.end() => return Ok(()),
            now = next => now?,
        };
        let page = Page::new(args, &before, &now);
        let (width, height) = terminal::size(io::stdout().as_fd()).unzip();
        let paper = Paper {
            width,
            colours: paint::wanted(true, no_color.as_deref()),
        };
        terminal.show(&page.lines(&paper, args.limit, height))?;
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(i: usize) -> Owner {
        Owner {
            name: format!("adapter-{i:07}"),
            state: "attached",
            rdma: "attached",
            rx_bps: 123_456_789_012,
            tx_bps: 123_456_789_012,
            rx_pps: 12_345_678,
            tx_pps: 12_345_678,
            rdma_rx_bps: 123_456_789_012,
            rdma_tx_bps: 123_456_789_012,
            drops_per_second: 12_345,
            ..Owner::default()
        }
    }

    fn page(n: usize) -> Page {
        Page {
            time: "2026-01-01T00:00:00Z".to_owned(),
            interval_ms: 1000,
            adapters: Some((0..n).map(owner).collect()),
            ports: Some(Vec::new()),
            queue_pairs: Some((0..n).map(|_| QueuePair::default()).collect()),
            cores: Some(vec![Core::default()]),
        }
    }

    #[test]
    fn a_page_fits_the_screen_and_says_what_it_leaves_out() {
        let paper = Paper {
            width: Some(80),
            colours: false,
        };
        for height in [1, 5, 10, 24, 25, 50] {
            let lines = page(100).lines(&paper, None, Some(height));
            assert!(lines.len() <= height, "{height}: {lines:#?}");
            assert!(lines.iter().all(|l| l.chars().count() <= 80), "{lines:#?}");
            if height >= 24 {
                assert!(lines.last().is_some_and(|l| l.starts_with("and ")), "{lines:#?}");
            }
        }
        let lines = page(100).lines(&paper, Some(2), None);
        assert_eq!(
            lines.iter().filter(|l| *l == "and 98 more").count(),
            2,
            "{lines:#?}"
        );
        // A section without rows has no heading.
        assert!(!lines.iter().any(|l| l.starts_with("PORT")), "{lines:#?}");
    }

    #[test]
    fn rates_of_an_adapter_that_is_up_fit_80_columns() {
        let paper = Paper {
            width: None,
            colours: false,
        };
        let adapter = Owner {
            name: "vf0".to_owned(),
            state: "up",
            rdma: "up",
            ..owner(0)
        };
        let page = Page {
            adapters: Some(vec![adapter]),
            ..Page::default()
        };
        for line in page.lines(&paper, None, None) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }

    #[test]
    fn lines_that_one_section_does_not_need_go_to_others() {
        assert_eq!(share(10, &[1, 100, 100]), [1, 5, 4]);
        assert_eq!(share(0, &[1, 1]), [0, 0]);
        assert_eq!(share(10, &[1, 2]), [1, 2]);
        assert_eq!(share(10, &[]), [0; 0]);
    }
}
