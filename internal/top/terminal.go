package top

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// IsTerminal tells whether a file is a terminal.
func IsTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// Control sequences (ECMA-48, xterm).
const (
	// begin switches to a screen of its own, hides the cursor and cuts lines at the edge.
	begin = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	// end undoes that.
	end = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"

	home      = "\x1b[H"
	endOfLine = "\x1b[K"
	rest      = "\x1b[J"
	plain     = "\x1b[0m"
)

// Of the styles: bold, yellow, and reverse.
var colours = map[Style]string{Title: "\x1b[1m", Look: "\x1b[33m", Chosen: "\x1b[7m"}

// frame are the lines as a terminal is told them, in the place of those before.
func frame(lines []Line, color bool) string {
	var b strings.Builder
	b.WriteString(home)
	for i, l := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		if start := colours[l.Style]; color && start != "" {
			b.WriteString(start + l.Text + plain + endOfLine)
		} else {
			b.WriteString(l.Text + endOfLine)
		}
	}
	b.WriteString(rest)
	return b.String()
}

// raw has the terminal hand over each key at once and show none. It returns what undoes that.
func raw(f *os.File) (restore func() error, err error) {
	fd := int(f.Fd())
	old, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil, err
	}
	now := *old
	now.Iflag &^= unix.BRKINT | unix.ICRNL | unix.INLCR | unix.IGNCR | unix.ISTRIP | unix.IXON
	now.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &now); err != nil {
		return nil, err
	}
	return func() error { return unix.IoctlSetTermios(fd, unix.TCSETS, old) }, nil
}

// size is that of the terminal; nothing if it does not know.
func size(f *os.File) Resize {
	w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return Resize{}
	}
	return Resize{int(w.Col), int(w.Row)}
}

// errGone says that the terminal is closed.
var errGone = errors.New("the terminal is gone")
