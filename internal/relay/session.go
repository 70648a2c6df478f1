package relay

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// answerTimeout bounds one exchange with the kernel: a kernel that lacks a part
// of nf_tables may answer with fewer messages than the library waits for.
const answerTimeout = time.Second

// session is a netlink socket to nf_tables that stays open: to close one takes 8
// to 40 ms if anything was deleted, because the kernel then waits until no
// processor uses that any more. The zero value is ready for use.
type session struct {
	conn   *nftables.Conn
	socket *netlink.Conn
}

// do runs f with a connection that answers in time.
func (s *session) do(f func(*nftables.Conn) error) error {
	if s.conn == nil {
		c, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(n *netlink.Conn) error {
			s.socket = n
			return nil
		}))
		if err != nil {
			return err
		}
		s.conn = c
	}
	err := s.socket.SetDeadline(time.Now().Add(answerTimeout))
	if err == nil {
		err = f(s.conn)
	}
	if err != nil {
		_ = s.close() // answers to what has failed may be under way
	}
	return err
}

// close ends the session; the next use begins another.
func (s *session) close() error {
	if s.conn == nil {
		return nil
	}
	c := s.conn
	*s = session{}
	return c.CloseLasting()
}

// transact sends what fill adds as one atomic transaction.
func (s *session) transact(fill func(*nftables.Conn) error) error {
	return s.do(func(c *nftables.Conn) error {
		if err := fill(c); err != nil {
			return err
		}
		return c.Flush()
	})
}

// exists tells whether the family has a table of this name.
func (s *session) exists(f family) (there bool, err error) {
	err = s.do(func(c *nftables.Conn) error {
		tables, err := c.ListTablesOfFamily(f.table().Family)
		there = slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == TableName })
		return err
	})
	return there, err
}

// remove deletes the table of a family; that there is none is no error.
func (s *session) remove(f family) error {
	there, err := s.exists(f) // far cheaper than a transaction that fails
	if err != nil {
		return fmt.Errorf("look for table: %w", err)
	}
	if !there {
		return nil
	}
	err = s.transact(func(c *nftables.Conn) error {
		c.DelTable(f.table())
		return nil
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete table: %w", err)
	}
	return nil
}

// impossible tells an error that will not go away.
func impossible(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT)
}
