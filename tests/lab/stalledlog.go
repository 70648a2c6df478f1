package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// logPipe is the named pipe to which a daemon writes its log, and its reader.
type logPipe struct {
	path string
	end  *os.File // both ends, so that the daemon may be started again

	mu      sync.Mutex
	stalled bool
	text    bytes.Buffer
}

func newLogPipe(dir string) (*logPipe, error) {
	p := &logPipe{path: filepath.Join(dir, "log.pipe")}
	if err := syscall.Mkfifo(p.path, 0o600); err != nil {
		return nil, fmt.Errorf("log pipe: %w", err)
	}
	var err error
	if p.end, err = os.OpenFile(p.path, os.O_RDWR|syscall.O_NONBLOCK, 0); err != nil {
		return nil, fmt.Errorf("log pipe: %w", err)
	}
	go p.read() // ends when the pipe is closed
	return p, nil
}

// read reads unless the reader is stalled.
func (p *logPipe) read() {
	buf := make([]byte, 64<<10)
	for {
		p.mu.Lock()
		stalled := p.stalled
		p.mu.Unlock()
		if stalled {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if err := p.end.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return
		}
		n, err := p.end.Read(buf)
		p.mu.Lock()
		p.text.Write(buf[:n])
		p.mu.Unlock()
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// stall ends the reading and fills the pipe, or begins to read again.
func (p *logPipe) stall(on bool) error {
	p.mu.Lock()
	p.stalled = on
	p.mu.Unlock()
	if !on {
		return nil
	}
	time.Sleep(200 * time.Millisecond) // for a read that is under way
	for {
		if err := p.end.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			return err
		}
		_, err := io.WriteString(p.end, ".\n")
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("log pipe: %w", err)
		}
	}
}

// StallLog has nobody read the log of the node's daemon any more, as when the disk of
// journald hangs: the pipe is full. It needs LBD.PipedLog.
func (s *LBD) StallLog(n *Node) error { return n.log.stall(true) }

// ReadLog undoes StallLog.
func (s *LBD) ReadLog(n *Node) error { return n.log.stall(false) }

// PipedText is what the reader has read.
func (s *LBD) PipedText(n *Node) string {
	text, _ := n.said() // of a pipe, which is in memory
	return string(text)
}

// said is the log of the node's daemons, as far as somebody has read it.
func (n *Node) said() ([]byte, error) {
	if n.log == nil {
		return os.ReadFile(n.Daemon.Log)
	}
	n.log.mu.Lock()
	defer n.log.mu.Unlock()
	return bytes.Clone(n.log.text.Bytes()), nil
}

// logCommand is the command with its log going to the pipe of the node.
func (s *LBD) logCommand(n *Node, argv []string) ([]string, error) {
	if !s.PipedLog {
		return argv, nil
	}
	if n.log == nil {
		var err error
		if n.log, err = newLogPipe(n.Dir); err != nil {
			return nil, err
		}
	}
	return append([]string{"sh", "-c", `log=$1; shift; exec "$@" 2>"$log"`, "sh", n.log.path}, argv...), nil
}
