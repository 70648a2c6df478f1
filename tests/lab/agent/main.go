// Agent is the program that the lab runs inside its namespaces: it serves, it
// asks, it looks at the wire, and it cleans up after a lab that died. Events go
// to standard output, one JSON value a line, stamped by CLOCK_MONOTONIC.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

func main() {
	if len(os.Args) < 2 {
		usage()
		os.Exit(2)
	}
	modes := map[string]func(context.Context, []string, *events) error{
		"serve": serve, "probe": probe, "conns": conns, "observe": observe, "announce": announce, "routes": routes, "addrs": watchAddrs,
		"janitor": janitor, "duty": duty, "watch": watch,
		"rtt": rtt, "send": send, "strays": strays, "rules": rules,
	}
	mode, ok := modes[os.Args[1]]
	if !ok {
		usage()
		os.Exit(2)
	}
	if os.Args[1] != "observe" { // which waits in the kernel, beside what it sends
		runtime.GOMAXPROCS(1) // a program that does little spends most of its time on waking other threads
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := mode(ctx, os.Args[2:], &events{enc: json.NewEncoder(os.Stdout)}); err != nil {
		fmt.Fprintf(os.Stderr, "agent: %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: agent serve|probe|conns|observe|announce|routes|addrs|janitor|duty|watch|rtt|send|strays|rules [flags]")
}

// events writes JSON lines; it is safe for concurrent use.
type events struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func (e *events) put(v any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	// The reader is the lab. When it is gone the agent is about to be stopped.
	_ = e.enc.Encode(v)
}

// discard reads until the peer closes.
func discard(r io.Reader) { _, _ = io.Copy(io.Discard, r) }
