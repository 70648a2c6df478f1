package gobgp

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	api "github.com/osrg/gobgp/v3/api"

	"lbd.dev/lbd/internal/model"
)

// The server has one path to a prefix for all peers. If its attributes are the same
// for all who get it, the path carries them, and the markers say how many prepends.
// If they differ the path carries none; the marker of a peer names a class, and the
// statement of that peer and class sets the attributes. A class lives as long as a
// path uses it.

// firstClass is the number of the first class in markers, where numbers of prepends
// are lower.
const firstClass = 1 << 16

// class are attributes that some peers get on paths that others get with other ones.
type class struct {
	id       int // in markers; never given twice
	attrs    model.PathAttributes
	shutdown bool
	users    map[string]int // how many paths, by name of the peer
}

// classOf finds or makes the class of an audience.
func (s *Speaker) classOf(to *model.BGPAudience) *class {
	for _, c := range s.classes {
		if c.shutdown == to.Shutdown && c.attrs.Equal(&to.PathAttributes) {
			return c
		}
	}
	s.lastClass++
	c := &class{id: firstClass + s.lastClass, attrs: to.PathAttributes, shutdown: to.Shutdown, users: make(map[string]int)}
	s.classes = append(s.classes, c)
	return c
}

// enlist has the policy know what a path needs, and returns the classes that it
// uses, one for each audience; none if all peers get the same.
func (s *Speaker) enlist(want *model.BGPPath) ([]*class, error) {
	if len(want.To) == 1 {
		n := want.To[0].Prepend
		if _, ok := s.prepends[n]; ok {
			return nil, nil
		}
		s.prepends[n] = struct{}{}
		for _, p := range s.peers {
			if err := s.admit(p); err != nil {
				return nil, fmt.Errorf("peer %q: %w", p.conf.Name, err)
			}
		}
		return nil, nil
	}
	classes := make([]*class, len(want.To))
	var failed error
	for i := range want.To {
		c := s.classOf(&want.To[i])
		classes[i] = c
		for _, name := range want.To[i].Peers {
			c.users[name]++
			if p := s.peers[name]; c.users[name] == 1 && p != nil {
				if err := s.admit(p); err != nil {
					failed = cmp.Or(failed, fmt.Errorf("peer %q: %w", name, err))
				}
			}
		}
	}
	if failed != nil {
		s.dismiss(want.To, classes)
		return nil, failed
	}
	return classes, nil
}

// dismiss ends what a path needed of the policy.
func (s *Speaker) dismiss(to []model.BGPAudience, classes []*class) {
	for i, c := range classes {
		for _, name := range to[i].Peers {
			if c.users[name]--; c.users[name] > 0 {
				continue
			}
			delete(c.users, name)
			if p := s.peers[name]; p != nil {
				if err := s.revoke(p, c.id); err != nil {
					s.log.Debug("policy not removed", "peer", name, "err", err)
				}
			}
		}
		if len(c.users) == 0 {
			s.classes = slices.DeleteFunc(s.classes, func(x *class) bool { return x == c })
		}
	}
}

// actions are what the statement of a peer does to paths with the marker of a class.
func (c *class) actions() *api.Actions {
	a := &api.Actions{}
	communities := c.attrs.Communities
	if c.shutdown {
		communities = append(slices.Clip(communities), gracefulShutdown)
	}
	if len(communities) > 0 {
		a.Community = &api.CommunityAction{Type: api.CommunityAction_REPLACE}
		for _, x := range communities {
			a.Community.Communities = append(a.Community.Communities, fmt.Sprintf("%d:%d", x>>16, x&0xffff))
		}
	}
	if len(c.attrs.LargeCommunities) > 0 { // in place of the markers
		a.LargeCommunity = &api.CommunityAction{Type: api.CommunityAction_REPLACE}
		for _, x := range c.attrs.LargeCommunities {
			a.LargeCommunity.Communities = append(a.LargeCommunity.Communities, fmt.Sprintf("%d:%d:%d", x[0], x[1], x[2]))
		}
	}
	if c.attrs.MEDSet {
		a.Med = &api.MedAction{Type: api.MedAction_REPLACE, Value: int64(c.attrs.MED)}
	}
	// The server keeps it from eBGP peers, and has no way to set 0, which the path has
	// if any of its peers shall leave.
	if !c.shutdown {
		a.LocalPref = &api.LocalPrefAction{Value: cmp.Or(c.attrs.LocalPref, defaultLocalPref)}
	}
	return a
}

// defaultLocalPref is what routers take for a path without LOCAL_PREF.
const defaultLocalPref = 100

// revoke removes the statements of a peer for one number in markers.
func (s *Speaker) revoke(p *peer, tag int) error {
	var names []string
	p.statements = slices.DeleteFunc(p.statements, func(name string) bool {
		of := slices.ContainsFunc([]*api.Family{ipv4, ipv6}, func(f *api.Family) bool {
			return strings.HasPrefix(name, fmt.Sprintf("%s-%d-%d-", p.set(), f.Afi, tag))
		})
		if of {
			names = append(names, name)
		}
		return of
	})
	if err := s.removeStatements(names); err != nil {
		return err
	}
	mark := p.mark(tag)
	if i := slices.Index(p.marks, mark); i >= 0 {
		p.marks = slices.Delete(p.marks, i, i+1)
		return s.removeMark(mark)
	}
	return nil
}
