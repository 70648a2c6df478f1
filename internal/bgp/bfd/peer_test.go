package bfd

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// peerEnv makes the test binary a peer, see peerProcess.
const peerEnv = "LBD_BFD_PEER"

// peerProcess is a Manager in a process of its own, which does nothing else. It
// answers each line with the status of its sessions, and ends with its input.
func peerProcess(spec string) int {
	var s []Session
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	m := New(slog.New(slog.DiscardHandler), nil)
	if err := m.Apply(s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		_ = out.Encode(m.Status())
	}
	return 0
}

// peer is a running peerProcess.
type peer struct {
	*lab
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
}

func (l *lab) peer(host string, s ...Session) *peer {
	l.Helper()
	spec, err := json.Marshal(s)
	if err != nil {
		l.Fatal(err)
	}
	p := &peer{lab: l, cmd: exec.Command("/proc/self/exe")}
	p.cmd.Env = append(os.Environ(), peerEnv+"="+string(spec))
	p.cmd.Stderr = os.Stderr
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		l.Fatal(err1, err2)
	}
	p.in, p.out = in, json.NewDecoder(out)
	l.In(host, func() { err = p.cmd.Start() })
	if err != nil {
		l.Fatal(err)
	}
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, p.cmd.Process.Pid, -5)
	l.Cleanup(func() {
		_ = in.Close()
		end := time.AfterFunc(time.Second, func() { _ = p.cmd.Process.Kill() }) // it may be frozen
		_ = p.cmd.Wait()
		end.Stop()
	})
	return p
}

// status of the sessions of the peer.
func (p *peer) status() (all []Status) {
	p.Helper()
	_, err := io.WriteString(p.in, "\n")
	if err == nil {
		err = p.out.Decode(&all)
	}
	if err != nil {
		p.Fatalf("peer: %v", err)
	}
	return all
}
