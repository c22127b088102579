package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"jobd/internal/ipc"
)

// The parts of the screen, from above: the title, the table with its head, the
// panel of the selected job, a line for notices, and the keys.
const (
	frameLines = 4 // the title, the table's head, the notice, the keys
	panelLeast = 7 // the panel's lines where there is room for them
	tableLeast = 3 // the table's jobs before the panel gets any
	barWidth   = 6
)

// rows is how many jobs the table can show.
func (m watch) rows() int {
	room := max(m.height-frameLines, 1)
	return max(min(len(m.jobs), room-panelLeast), min(room, tableLeast))
}

// tailRoom is how many lines of output can be shown of the selected job.
func (m watch) tailRoom() int { return max(m.height-frameLines, 1) }

// View implements tea.Model.
func (m watch) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	return v
}

// lines are those of the screen: exactly its height, none wider than it.
func (m watch) lines() []string {
	var body []string
	switch job := m.current(); {
	case m.jobs == nil:
		body = []string{"", m.dim("asking jobd…")}
	case job == nil && m.single:
		body = []string{"", m.dim("the job is no longer kept")}
	case job == nil:
		body = []string{"", m.dim("no job runs, waits or has an unread result"), m.dim("jobd run -- CMD starts one, in another terminal")}
	case m.output:
		body = m.panel(*job, m.height-3)
	default:
		body = append(m.table(), m.panel(*job, m.height-frameLines-min(len(m.jobs), m.rows()))...)
	}
	room := max(m.height-3, 0)
	all := append([]string{m.title()}, body[:min(len(body), room)]...)
	for len(all) < room+1 {
		all = append(all, "")
	}
	all = append(all, m.note(), m.keys())
	return all[:min(len(all), m.height)]
}

func (m watch) cut(text string) string { return fit(text, m.screen.width) }

func (m watch) dim(text string) string { return m.screen.paint(dim, m.cut(text)) }

// title counts the jobs, those that need the person first.
func (m watch) title() string {
	if m.away != "" {
		return m.screen.paint(red, m.cut(m.away))
	}
	var asking, running, queued, ended int
	for _, job := range m.jobs {
		switch {
		case len(job.Questions) > 0:
			asking++
		case job.Final:
			ended++
		case job.State == "queued":
			queued++
		default:
			running++
		}
	}
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{{running, "running"}, {queued, "queued"}, {ended, "ended"}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	rest := strings.Join(parts, ", ")
	if asking == 0 {
		return m.screen.paint(bold, m.cut(strings.TrimSpace("jobd  "+rest)))
	}
	ask := fmt.Sprintf("%d waiting for you", asking)
	if rest != "" {
		rest = ", " + rest
	}
	return m.screen.paint(bold, m.cut("jobd  ")) + m.screen.paint(yellow, fit(ask, max(m.screen.width-6, 1))) +
		m.screen.paint(bold, fit(rest, max(m.screen.width-6-columns(ask), 0)))
}

// wideEnough is the least width of a screen for all of the table's columns.
const wideEnough = 64

// table is the list of jobs, the selected one marked by ">".
func (m watch) table() []string {
	t := table{header: []string{"ID", "STATE"}, most: []int{0, 0}, least: []int{8, 7}}
	all := m.screen.width >= wideEnough
	if all {
		t.header, t.most, t.least = append(t.header, "AGE"), append(t.most, 0), append(t.least, 4)
	}
	t.header, t.most, t.least = append(t.header, "NAME"), append(t.most, 16), append(t.least, 6)
	if all {
		t.header, t.most, t.least = append(t.header, "PROGRESS"), append(t.most, 0), append(t.least, barWidth+7)
	}
	t.header, t.most, t.least = append(t.header, "LAST LINE"), append(t.most, 0), append(t.least, 0)
	short := m.short()
	shown := m.onScreen()
	for _, job := range shown {
		row := []cell{{text: short[job.ID]}, {text: job.State, colour: stateColour(job)}}
		if all {
			row = append(row, cell{text: shortSpan(m.at.Sub(job.CreatedAt))})
		}
		row = append(row, cell{text: safeLine(job.Name)})
		if all {
			row = append(row, m.progress(job))
		}
		t.rows = append(t.rows, append(row, m.lastLine(job)))
	}
	const mark = 2
	s := m.screen
	s.width = max(s.width-mark, 1)
	var b bytes.Buffer
	_ = t.write(&b, s) // a buffer takes everything
	var lines []string
	for i, line := range strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n") {
		prefix := "  "
		if i > 0 && shown[i-1].ID == m.selected {
			prefix = m.screen.paint(bold, "> ")
		}
		lines = append(lines, prefix+line)
	}
	return lines
}

// short are the ids by which the jobs are named on the screen.
func (m watch) short() map[string]string {
	ids := make([]string, len(m.jobs))
	for i, job := range m.jobs {
		ids[i] = job.ID
	}
	return shortIDs(ids)
}

// progress is a bar, or how long a question stays open.
func (m watch) progress(job ipc.Job) cell {
	switch {
	case len(job.Questions) > 0:
		return cell{text: "? " + shortSpan(m.left(job.Questions[0])) + " left", colour: yellow}
	case job.Progress == nil || job.Final:
		return cell{}
	case job.Progress.Total > 0:
		return cell{text: bar(*job.Progress, barWidth), colour: blue}
	case job.Progress.Done != 0:
		return cell{text: number(job.Progress.Done)}
	}
	return cell{}
}

// lastLine is what the job says at the moment.
func (m watch) lastLine(job ipc.Job) cell {
	switch tail := m.tails[job.ID]; {
	case len(job.Questions) > 0:
		return cell{text: safeLine(job.Questions[0].Message), colour: yellow}
	case job.Progress != nil && !job.Final && len(tail) > 0:
		return cell{text: tail[len(tail)-1]}
	}
	return cell{text: safeLine(job.StatusMessage)}
}

// left is how long a question stays open. Time goes on while jobd is away.
func (m watch) left(q ipc.Question) time.Duration {
	return max(millis(q.LeftMS)-max(m.at.Sub(m.seen), 0), 0)
}

// bar draws how far a job has got: "[==>   ]  42%".
func bar(p ipc.Progress, width int) string {
	part := min(max(p.Done/p.Total, 0), 1)
	if part != part { // infinite of infinite
		part = 0
	}
	full := int(part * float64(width))
	inside := strings.Repeat("=", full)
	if full < width && part > 0 {
		inside += ">"
	}
	return fmt.Sprintf("[%-*s] %3d%%", width, inside, int(part*100))
}

// panel tells of the selected job: who it is, what it asks, and the end of its
// output, in so many lines.
func (m watch) panel(job ipc.Job, height int) []string {
	if height < 1 {
		return nil
	}
	who := fmt.Sprintf("%s  %s  %s", safeLine(job.Name), job.State, m.short()[job.ID])
	if job.Project != "" {
		who += "  in " + safeLine(filepath.Base(job.Project))
	}
	lines := []string{m.screen.paint(bold, m.cut("-- "+who+" "+strings.Repeat("-", max(m.screen.width-columns(who)-4, 0))))}
	if p := job.Progress; p != nil && !job.Final {
		lines = append(lines, m.screen.paint(blue, m.cut(m.longBar(*p))))
	}
	for _, q := range job.Questions {
		q.LeftMS = m.left(q).Milliseconds()
		lines = append(lines, m.screen.paint(yellow, m.cut("? "+safeLine(q.Message))))
		if q.Fault != "" {
			lines = append(lines, m.screen.paint(red, m.cut("  the last answer was not taken: "+safeLine(q.Fault))))
		}
		lines = append(lines, m.dim("  "+inTime(q)+"; a answers"))
	}
	if job.Final {
		lines = append(lines, m.cut(safeLine(job.StatusMessage)))
	}
	lines = lines[:min(len(lines), height)]
	tail, known := m.tails[job.ID]
	if known && len(tail) == 0 {
		tail = []string{m.dim("(no output)")}
	}
	for _, line := range tail[max(len(tail)-(height-len(lines)), 0):] {
		lines = append(lines, m.cut(line))
	}
	return lines
}

// longBar is a bar with what the job says of its progress.
func (m watch) longBar(p ipc.Progress) string {
	if p.Total > 0 {
		return fmt.Sprintf("%s  %s of %s  %s", bar(p, 20), number(p.Done), number(p.Total), safeLine(p.Text))
	}
	return safeLine(progressText(p))
}

// note asks before a job is cancelled, or tells what came of a key.
func (m watch) note() string {
	if job := m.find(m.confirming); job != nil {
		return m.screen.paint(red, m.cut(fmt.Sprintf("Cancel %s (%s) and all its processes? y = yes, any other key = no", safeLine(job.Name), m.short()[job.ID])))
	}
	if m.notice == "" && !m.output && len(m.jobs) > m.rows() {
		return m.dim(fmt.Sprintf("jobs %d to %d of %d", m.top+1, m.top+len(m.onScreen()), len(m.jobs)))
	}
	return m.screen.paint(yellow, m.cut(m.notice))
}

// keys is the last line.
func (m watch) keys() string {
	logs := "   jobd logs " + m.short()[m.selected]
	switch {
	case len(m.jobs) == 0:
		return m.dim("q quit")
	case m.single:
		return m.dim("a answer  c cancel  q quit" + logs)
	case m.output:
		return m.dim("esc back  j/k other job  a answer  c cancel  q quit" + logs)
	}
	return m.dim("j/k or arrows select  enter output  a answer  c cancel  q quit")
}
