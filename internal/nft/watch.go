package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	// watchBuffer is room for what a firewall with thousands of rules says when it is
	// loaded anew.
	watchBuffer = 4 << 20
	// A watch calls at once, mendBurst times, and in the long run every mendEvery: somebody
	// who removes a table again and again costs no more.
	mendEvery = 500 * time.Millisecond
	mendBurst = 20
	// watchAgain is the pause before a new socket after one that has failed.
	watchAgain = time.Second
)

// watch listens for changes that others make to tables (NFNLGRP_NFTABLES).
type watch struct {
	tables []*nftables.Table
	lost   func()
	others atomic.Uint64 // transactions of others so far
	stop   chan struct{}

	mu   sync.Mutex
	conn *netlink.Conn // nil once it is stopped
	own  uint32        // port of the session whose changes are no news
}

// Watch has lost called, on a goroutine of its own, whenever somebody else has changed one
// of the tables, and when that may have been missed. It does nothing if the session watches
// already; Unwatch and Close end it. If changes are many, lost is called for a few of them only.
func (s *Session) Watch(lost func(), tables ...*nftables.Table) error {
	if s.watch != nil {
		return nil
	}
	if err := s.open(); err != nil { // so that its own changes are known from the start
		return err
	}
	w := &watch{tables: tables, lost: lost, stop: make(chan struct{})}
	if err := w.listen(s.port); err != nil {
		return err
	}
	s.watch = w
	s.watches.Go(w.run)
	return nil
}

// Unwatch ends what Watch began; lost may be called once more meanwhile. Who listens makes
// the transactions of everybody dearer.
func (s *Session) Unwatch() {
	if s.watch != nil {
		s.watch.end()
		s.watch = nil
	}
}

// Others counts the transactions of others since the session began to watch, of any tables.
func (s *Session) Others() uint64 {
	if s.watch == nil {
		return 0
	}
	return s.watch.others.Load()
}

// listen opens the socket.
func (w *watch) listen(own uint32) error {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	_ = c.SetReadBuffer(watchBuffer)
	if err = ignore(c, own); err == nil {
		err = c.JoinGroup(unix.NFNLGRP_NFTABLES)
	}
	if err != nil {
		_ = c.Close()
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped() {
		return c.Close()
	}
	w.conn, w.own = c, own
	return nil
}

func (w *watch) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// except has changes that come from this port ignored from now on.
func (w *watch) except(own uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.own = own; w.conn != nil {
		_ = ignore(w.conn, own)
	}
}

// ignore has the kernel drop what a transaction from this port causes: with thousands of
// addresses each refresh is as many messages. Those of one transaction come together, so
// the header of the first says whose they are.
func ignore(c *netlink.Conn, port uint32) error {
	const headerPort = 12 // nlmsg_pid in struct nlmsghdr
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], port) // a filter reads it in network order
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: headerPort, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: binary.BigEndian.Uint32(b[:]), SkipFalse: 1},
		bpf.RetConstant{Val: 0},
		bpf.RetConstant{Val: 1<<32 - 1},
	})
	if err != nil {
		return err
	}
	return c.SetBPF(program)
}

func (w *watch) end() {
	close(w.stop)
	w.mu.Lock()
	if w.conn != nil {
		_ = w.conn.Close()
		w.conn = nil
	}
	w.mu.Unlock()
}

func (w *watch) run() {
	var due time.Time
	hit := false
	for {
		more, whole, err := w.receive()
		if err != nil {
			if !w.again() {
				return
			}
			more, whole = true, true // nobody knows what was missed
		}
		if hit = hit || more; !hit || !whole {
			continue
		}
		hit = false
		if first := time.Now().Add(-mendBurst * mendEvery); due.Before(first) {
			due = first
		}
		due = due.Add(mendEvery)
		if !w.rest(time.Until(due)) {
			return
		}
		w.lost()
	}
}

// rest waits, and tells whether the watch goes on.
func (w *watch) rest(d time.Duration) bool {
	if d <= 0 {
		return !w.stopped()
	}
	select {
	case <-w.stop:
		return false
	case <-time.After(d):
		return true
	}
}

// again opens a new socket in place of one that has failed, and tells whether the watch
// goes on.
func (w *watch) again() bool {
	for w.rest(watchAgain) {
		w.mu.Lock()
		own, old := w.own, w.conn
		w.mu.Unlock()
		if old != nil {
			_ = old.Close()
		}
		if w.listen(own) == nil {
			return !w.stopped()
		}
	}
	return false
}

// receive waits for messages, and tells whether one of the tables was changed, and whether
// that was the end of a transaction: a new generation of the rules is told last.
func (w *watch) receive() (hit, whole bool, err error) {
	w.mu.Lock()
	c := w.conn
	w.mu.Unlock()
	if c == nil {
		return false, false, unix.EBADF
	}
	messages, err := c.Receive()
	if errors.Is(err, unix.ENOBUFS) {
		w.others.Add(1)
		return true, true, nil
	}
	for i := range messages {
		m := &messages[i]
		if kind(m) == unix.NFT_MSG_NEWGEN {
			w.others.Add(1)
			whole = true
		}
		hit = hit || w.about(m)
	}
	return hit, whole, err
}

// kind is the type of a message of nf_tables; -1 of any other.
func kind(m *netlink.Message) int {
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES {
		return -1
	}
	return int(m.Header.Type & 0xff)
}

// about tells whether a message is about one of the tables. The first attribute of all
// kinds but one has the name of the table (NFTA_TABLE_NAME, NFTA_CHAIN_TABLE and so on, in
// include/uapi/linux/netfilter/nf_tables.h); the kernel writes it first.
func (w *watch) about(m *netlink.Message) bool {
	const header, attribute, name = 4, 4, 1 // struct nfgenmsg, struct nlattr
	if k := kind(m); k < 0 || k == unix.NFT_MSG_NEWGEN || len(m.Data) < header+attribute {
		return false
	}
	a := m.Data[header:]
	size, of := int(binary.NativeEndian.Uint16(a)), binary.NativeEndian.Uint16(a[2:])
	if of != name || size < attribute || size > len(a) {
		return false
	}
	text := bytes.TrimRight(a[attribute:size], "\x00")
	return slices.ContainsFunc(w.tables, func(t *nftables.Table) bool { return byte(t.Family) == m.Data[0] && t.Name == string(text) })
}
