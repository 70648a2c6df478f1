// Package nft is the netlink session to nf_tables that the drivers have. It needs
// CAP_NET_ADMIN and not the nft program.
package nft

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// buffer lets one transaction hold, and the kernel answer, more than the thousands of
// addresses for which the default is enough: a million elements of a map. No memory is
// taken before it is used.
const buffer = 256 << 20

// Session is a netlink socket to nf_tables that stays open. A transaction takes
// well under a millisecond, but to close a socket takes 8 to 40 ms if anything was
// deleted, because the kernel then waits until no processor uses that any more.
// It is for one goroutine at a time.
type Session struct {
	timeout time.Duration
	conn    *nftables.Conn // nil until the first use, and after a failure
	socket  *netlink.Conn  // that of conn
	port    uint32         // of socket, which the kernel names as the cause of changes
	watch   *watch         // nil: see Watch
	watches sync.WaitGroup
}

// New returns a session that opens its socket, in the network namespace of the
// calling thread, with the first use. Timeout bounds one exchange with the kernel:
// a kernel that lacks a part of nf_tables may answer with fewer messages than the
// library waits for.
func New(timeout time.Duration) *Session { return &Session{timeout: timeout} }

// Do runs f with a connection that answers in time. An error of f ends the
// connection, and with it what f has added and not sent; the next use begins
// another.
func (s *Session) Do(f func(*nftables.Conn) error) error {
	if err := s.open(); err != nil {
		return err
	}
	err := s.socket.SetDeadline(time.Now().Add(s.timeout))
	if err == nil {
		err = f(s.conn)
	}
	if err != nil {
		_ = s.drop() // answers to what has failed may be under way
	}
	return err
}

// open opens the socket unless there is one.
func (s *Session) open() error {
	if s.conn != nil {
		return nil
	}
	c, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(n *netlink.Conn) error {
		s.socket = n
		_, _ = n.SetWriteBuffer(buffer), n.SetReadBuffer(buffer)
		return nil
	}))
	if err != nil {
		return err
	}
	s.conn, s.port = c, port(s.socket)
	if s.watch != nil {
		s.watch.except(s.port)
	}
	return nil
}

// port is the netlink port of a socket; 0, which is the kernel's, if it cannot be told.
func port(c *netlink.Conn) (port uint32) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if a, err := unix.Getsockname(int(fd)); err == nil {
			if n, ok := a.(*unix.SockaddrNetlink); ok {
				port = n.Pid
			}
		}
	})
	return port
}

// Close ends the session and its watch; the next use begins another.
func (s *Session) Close() error {
	s.Unwatch()
	s.watches.Wait()
	return s.drop()
}

// drop closes the socket; the next use opens another.
func (s *Session) drop() error {
	if s.conn == nil {
		return nil
	}
	c := s.conn
	s.conn, s.socket = nil, nil
	return c.CloseLasting()
}

// Transact sends what fill adds as one atomic transaction.
func (s *Session) Transact(fill func(*nftables.Conn) error) error {
	return s.Do(func(c *nftables.Conn) error {
		if err := fill(c); err != nil {
			return err
		}
		return few(c.Flush())
	})
}

// most is how many errors of one transaction are told.
const most = 3

// few leaves one of those that say the same: the library joins one for each message of a transaction,
// and there may be thousands.
func few(err error) error {
	var joined interface{ Unwrap() []error }
	var all, told []error
	for errors.As(err, &joined) { // each of the last one and those before it
		parts := joined.Unwrap()
		all, err = append(all, parts[1:]...), parts[0]
	}
	known := make(map[string]bool)
	for _, err := range slices.Backward(append(all, err)) {
		if err != nil && !known[err.Error()] && len(told) < most {
			told = append(told, err)
			known[err.Error()] = true
		}
	}
	return errors.Join(told...)
}

// Exists tells whether the family of t has a table of its name.
func (s *Session) Exists(t *nftables.Table) (there bool, err error) {
	err = s.Do(func(c *nftables.Conn) error {
		tables, err := c.ListTablesOfFamily(t.Family)
		there = slices.ContainsFunc(tables, func(o *nftables.Table) bool { return o.Name == t.Name })
		return err
	})
	return there, err
}

// Has tells whether there is a chain of this name in the table, or the table if chain is empty. It
// costs the same however many there are.
func (s *Session) Has(t *nftables.Table, chain string) (there bool, err error) {
	kind, attrs := unix.NFT_MSG_GETTABLE, []netlink.Attribute{{Type: unix.NFTA_TABLE_NAME, Data: []byte(t.Name + "\x00")}}
	if chain != "" {
		kind = unix.NFT_MSG_GETCHAIN
		attrs = []netlink.Attribute{
			{Type: unix.NFTA_CHAIN_TABLE, Data: []byte(t.Name + "\x00")}, {Type: unix.NFTA_CHAIN_NAME, Data: []byte(chain + "\x00")},
		}
	}
	data, err := netlink.MarshalAttributes(attrs)
	if err != nil {
		return false, err
	}
	err = s.Do(func(*nftables.Conn) error {
		_, err := s.socket.Execute(netlink.Message{
			Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | kind), Flags: netlink.Request},
			Data:   append([]byte{byte(t.Family), unix.NFNETLINK_V0, 0, 0}, data...),
		})
		if there = err == nil; errors.Is(err, unix.ENOENT) {
			return nil // the whole answer
		}
		return err
	})
	return there, err
}

// Remove deletes the table of this name and family; that there is none is no error.
func (s *Session) Remove(t *nftables.Table) error {
	there, err := s.Exists(t) // far cheaper than a transaction that fails
	if err != nil {
		return fmt.Errorf("look for table: %w", err)
	}
	if !there {
		return nil
	}
	err = s.Transact(func(c *nftables.Conn) error {
		c.DelTable(t)
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete table: %w", err)
	}
	return nil
}

// families are the words of nft for them.
var families = map[nftables.TableFamily]string{
	nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyARP: "arp",
}

// Clean deletes the tables of these names and families, and names those that there were.
func (s *Session) Clean(tables ...*nftables.Table) (removed []string, err error) {
	var errs []error
	for _, t := range tables {
		there, err := s.Exists(t)
		if err == nil && there {
			err = s.Remove(t)
		}
		if err == nil && there {
			removed = append(removed, "table "+families[t.Family]+" "+t.Name)
		}
		errs = append(errs, err)
	}
	return removed, errors.Join(errs...)
}

// Impossible tells an error that will not go away: no nf_tables in this kernel, or
// no right to use it.
func Impossible(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT)
}
