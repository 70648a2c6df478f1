package forward

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"lbd.dev/lbd/internal/model"
	"lbd.dev/lbd/internal/nft"
)

// state is what is known of the table in the kernel.
type state uint8

const (
	unknown state = iota // perhaps that of an earlier process
	changed              // whatever is there is to be replaced
	absent
	there
)

// table is what is known of the table of one family.
type table struct {
	family *family
	state  state
	// If state is there: what it was made for, and what it has.
	services []*model.ForwardService
	replies  []model.ForwardReply
	image    *image
	// inherited are the services of the table of an earlier process, while it is kept.
	inherited map[string]bool
	// grown: it has services that it had not, since strays were looked for, see settle.
	grown bool
}

// bring makes the table that of the services. A table of an earlier process that has more
// is kept until the sources of services have all been heard.
func (t *table) bring(s *nft.Session, services []*model.ForwardService, replies []model.ForwardReply, synced bool) error {
	if len(services) == 0 {
		return t.remove(s, synced)
	}
	if t.state == there && slices.EqualFunc(t.services, services, (*model.ForwardService).Same) && slices.Equal(t.replies, replies) {
		if still, err := s.Exists(t.family.table); err != nil || still {
			return err
		}
		t.state = changed
	}
	next := t.family.describe(services, replies, t.image)
	if next.fresh(t.image) > heavy {
		s.Unwatch()
	}
	if t.state == there && t.change(s, next) == nil {
		t.services, t.replies = services, replies
		return nil
	}
	// A question first: to a transaction a kernel without nf_tables gives fewer answers
	// than the library waits for.
	old, err := s.Exists(t.family.table)
	if err == nil && old && t.state == unknown && !synced {
		if err = t.inherit(s, next); err == nil && t.inherited != nil {
			return nil
		}
	}
	if err == nil {
		err = s.Transact(func(c *nftables.Conn) error { return t.family.install(c, old, next) })
	}
	if err != nil {
		t.forget()
		return fmt.Errorf("forward: %s: install rules: %w", t.family.name, err)
	}
	t.state, t.services, t.replies, t.image, t.inherited, t.grown = there, services, replies, next, nil, true
	return nil
}

// change changes what differs. It fails if somebody has removed the table.
func (t *table) change(s *nft.Session, next *image) error {
	if err := s.Transact(func(c *nftables.Conn) error { return t.family.change(c, t.image, next) }); err != nil {
		t.state = changed
		return err
	}
	for key := range next.elements[setTargets] {
		if _, had := t.image.elements[setTargets][key]; !had {
			t.grown = true
		}
	}
	t.image = next
	return nil
}

// inherit finds out whether the table of an earlier process has services that are not
// wanted: it may be that they are not known yet.
func (t *table) inherit(s *nft.Session, next *image) error {
	var old []nftables.SetElement
	set := t.family.set(setServices)
	err := s.Do(func(c *nftables.Conn) (err error) {
		if _, err = c.GetSetByName(set.Table, set.Name); err == nil {
			old, err = c.GetSetElements(set)
		}
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		return nil // not even the set: that of another version
	}
	inherited, more := make(map[string]bool, len(old)), false
	for _, e := range old {
		inherited[string(e.Key)] = true
		if _, wanted := next.elements[setServices][string(e.Key)]; !wanted {
			more = true
		}
	}
	t.inherited = nil
	if more {
		t.inherited = inherited
	}
	return err
}

// remove deletes the table.
func (t *table) remove(s *nft.Session, synced bool) error {
	if t.state == absent || t.state == unknown && !synced {
		return nil
	}
	t.forget()
	// Where there is no nf_tables, or no right to use it, there is nothing to delete.
	if err := s.Remove(t.family.table); err != nil && !nft.Impossible(err) {
		return fmt.Errorf("forward: %s: %w", t.family.name, err)
	}
	t.state = absent
	return nil
}

// forget notes that it is not known what the table has. That of an earlier process stays
// one.
func (t *table) forget() {
	if t.state != unknown {
		t.state = changed
	}
	t.services, t.replies, t.image, t.inherited = nil, nil, nil, nil
}

// forwards tells whether the kernel has a service.
func (t *table) forwards(s *model.ForwardService) bool {
	return t.state == there || t.inherited[serviceKey(s)]
}
