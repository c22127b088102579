package main

import (
	"fmt"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"jobd/internal/ipc"
)

// A watch is what "status --watch" shows: the model of a bubbletea program.
// What it becomes and what it shows depends on nothing but what arrives; the
// deeds are done by the commands that Update returns.
type watch struct {
	do     watchDeeds
	screen screen
	height int

	// at is the time that ages and deadlines are shown for; seen is when jobs
	// were listed.
	at, seen time.Time
	// jobs are nil until they were listed once.
	jobs  []ipc.Job
	tails map[string][]string
	// away says why there is no newer list, "" if there is.
	away string

	// selected is the id of a job, top the first of the jobs on the screen.
	selected string
	top      int
	// output: the selected job's output fills the screen. single: no other job
	// is watched.
	output, single bool
	// confirming is the id of the job that is cancelled at the next "y".
	confirming string
	notice     string
	noticed    time.Time

	// looking: a look is under way; then wants is the one that follows at once,
	// nil if there is time. turn tells the newest alarm from those before it.
	looking bool
	wants   *glance
	turn    int
}

// watchDeeds are what a watch does to the world.
type watchDeeds struct {
	look   func(glance) tea.Cmd // its message is a sight
	cancel func(ipc.Job) tea.Cmd
	answer func(ipc.Job) tea.Cmd
}

// An alarm says that it is time to look again.
type alarm struct {
	at   time.Time
	turn int
}

// noticeFor is how long a notice stays.
const noticeFor = 6 * time.Second

func newWatch(s screen, now time.Time, do watchDeeds) watch {
	return watch{do: do, screen: s, height: 24, at: now, looking: true}
}

// Init implements tea.Model.
func (m watch) Init() tea.Cmd {
	return m.do.look(glance{jobs: true, tail: m.selected, lines: m.tailRoom()})
}

// Update implements tea.Model.
func (m watch) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.screen.width, m.height = max(msg.Width, 1), max(msg.Height, 1)
		m, cmd = m.look(false)
	case tea.KeyPressMsg:
		m, cmd = m.press(msg.String())
	case sight:
		m, cmd = m.see(msg)
	case alarm:
		if msg.turn == m.turn {
			m.at = msg.at
			m, cmd = m.look(true)
		}
	case cancelled:
		if msg.err != nil {
			m = m.say("%s was not cancelled: %s", msg.job.Name, msg.err)
		} else {
			m = m.say("%s is being cancelled", msg.job.Name)
		}
		m, cmd = m.look(true)
	case answered:
		switch {
		case msg.err != nil:
			m = m.say("answering %s: %s", msg.job.Name, msg.err)
		case msg.code != 0:
			m = m.say("%s was not answered; the question stays open", msg.job.Name)
		}
		m, cmd = m.look(true)
	}
	return m.settle(), cmd
}

// see takes over what a look has found out.
func (m watch) see(s sight) (watch, tea.Cmd) {
	m.looking = false
	m.at = s.at
	m.away = awayText(s.away)
	if s.away == nil {
		if s.jobs {
			m.seen, m.jobs = s.at, s.list
			if m.jobs == nil {
				m.jobs = []ipc.Job{}
			}
		}
		m = m.keep(s.tails)
	}
	if m.wants != nil {
		g := *m.wants
		m.wants, m.looking = nil, true
		return m, m.do.look(g)
	}
	if m = m.settle(); m.away == "" && m.current() != nil && s.tail != m.selected {
		// It came to be selected by this look, which was not for its output.
		return m.look(false)
	}
	m.turn++
	turn := m.turn
	return m, tea.Tick(pause(s.took), func(at time.Time) tea.Msg { return alarm{at, turn} })
}

// keep remembers the tails of jobs that are still there.
func (m watch) keep(tails map[string][]string) watch {
	kept := make(map[string][]string)
	for _, job := range m.jobs {
		lines, ok := tails[job.ID]
		if !ok {
			lines, ok = m.tails[job.ID]
		}
		if ok {
			kept[job.ID] = lines
		}
	}
	m.tails = kept
	return m
}

// look starts a look, or lets one follow that which is under way.
func (m watch) look(jobs bool) (watch, tea.Cmd) {
	m = m.settle()
	g := glance{jobs: jobs, tail: m.selected, lines: m.tailRoom(), last: m.reporting()}
	if m.looking {
		g.jobs = g.jobs || m.wants != nil && m.wants.jobs
		m.wants = &g
		return m, nil
	}
	m.looking = true
	return m, m.do.look(g)
}

// reporting are the jobs on the screen whose status message is not the last
// line of their output.
func (m watch) reporting() []string {
	var ids []string
	for _, job := range m.onScreen() {
		if job.Progress != nil && !job.Final && job.ID != m.selected {
			ids = append(ids, job.ID)
		}
	}
	return ids
}

// press does what a key is for.
func (m watch) press(key string) (watch, tea.Cmd) {
	m.notice = ""
	if m.confirming != "" {
		job := m.find(m.confirming)
		m.confirming = ""
		if key == "y" && job != nil {
			return m, m.do.cancel(*job)
		}
		return m, nil
	}
	switch key {
	case "q", "ctrl+c":
		return m, tea.Quit
	case "ctrl+z":
		return m, tea.Suspend
	case "up", "k":
		return m.move(-1)
	case "down", "j":
		return m.move(1)
	case "pgup":
		return m.move(-m.rows())
	case "pgdown":
		return m.move(m.rows())
	case "home", "g":
		return m.move(-len(m.jobs))
	case "end", "G":
		return m.move(len(m.jobs))
	case "enter", "l", "right":
		if m.current() != nil {
			m.output = true
			return m.look(false)
		}
	case "esc", "h", "left", "backspace":
		m.output = m.single
	case "a":
		job := m.current()
		switch {
		case job == nil:
		case len(job.Questions) == 0:
			m = m.say("%s asks nothing", job.Name)
		default:
			return m, m.do.answer(*job)
		}
	case "c":
		job := m.current()
		switch {
		case job == nil:
		case job.Final:
			m = m.say("%s has ended", job.Name)
		default:
			m.confirming = job.ID
		}
	}
	return m, nil
}

// move selects another job.
func (m watch) move(by int) (watch, tea.Cmd) {
	if len(m.jobs) == 0 {
		return m, nil
	}
	i := min(max(m.index()+by, 0), len(m.jobs)-1)
	if m.jobs[i].ID == m.selected {
		return m, nil
	}
	m.selected = m.jobs[i].ID
	return m.look(false)
}

func (m watch) say(format string, args ...any) watch {
	m.notice, m.noticed = safeLine(fmt.Sprintf(format, args...)), m.at
	return m
}

// settle makes the selection a job that is there, and keeps it on the screen.
func (m watch) settle() watch {
	if m.notice != "" && m.at.Sub(m.noticed) > noticeFor {
		m.notice = ""
	}
	if len(m.jobs) == 0 {
		m.top, m.output, m.confirming = 0, m.single, ""
		return m
	}
	if m.index() < 0 {
		// It is gone: the one that took its place. At first it is the newest.
		m.selected = m.jobs[min(m.top, len(m.jobs)-1)].ID
		m.output, m.confirming = m.single, ""
	}
	rows, i := m.rows(), m.index()
	m.top = max(min(m.top, i, len(m.jobs)-rows), i-rows+1, 0)
	return m
}

// index is the place of the selected job, -1 if it is not there.
func (m watch) index() int {
	return slices.IndexFunc(m.jobs, func(job ipc.Job) bool { return job.ID == m.selected })
}

// current is the selected job, nil if there is none.
func (m watch) current() *ipc.Job { return m.find(m.selected) }

func (m watch) find(id string) *ipc.Job {
	for i := range m.jobs {
		if m.jobs[i].ID == id {
			return &m.jobs[i]
		}
	}
	return nil
}

// onScreen are the jobs in the table's window.
func (m watch) onScreen() []ipc.Job {
	return m.jobs[m.top:min(m.top+m.rows(), len(m.jobs))]
}
