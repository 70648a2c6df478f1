package gobgp

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"lbd.dev/lbd/internal/model"
)

// Who gets which path: a path carries one marker for each peer that shall get
// it, a large community (RFC 8092) whose first number is reserved. The export
// policy has one statement for each peer, family and number of prepends or class
// (path.go); it takes paths with the marker of its peer, removes all markers and
// accepts. All else is refused. So the server itself sees from the old and the new
// path to one prefix who has to get an update, a withdrawal or nothing, and VIPs
// that are advertised alike to all of their peers never touch the policy.
//
// The server compares the addresses of peers without their interface, so two
// peers that are fe80::1 on two interfaces are the same to it; see SetPath.
const (
	markerASN    = 0xffffffff // Global Administrator that nobody may use, RFC 8092 section 5
	markers      = "^4294967295:"
	importPolicy = "import"
	exportPolicy = "export"
)

// marker lets a peer have a path. The tag is the number of prepends, or a class.
func marker(peer, tag int) *bgp.LargeCommunity {
	return bgp.NewLargeCommunity(markerASN, uint32(peer), uint32(tag))
}

// refuseAll sets the policies: of routes only the own ones are imported, none is
// exported.
func refuseAll(ctx context.Context, srv *server.BgpServer) error {
	own := &api.Statement{
		Name:       "own",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}
	for _, p := range []struct {
		name      string
		direction api.PolicyDirection
		first     []*api.Statement
	}{
		{importPolicy, api.PolicyDirection_POLICY_DIRECTION_IMPORT, []*api.Statement{own}},
		{exportPolicy, api.PolicyDirection_POLICY_DIRECTION_EXPORT, nil},
	} {
		policy := &api.Policy{Name: p.name, Statements: p.first}
		if err := srv.AddPolicy(ctx, &api.AddPolicyRequest{Policy: policy}); err != nil {
			return fmt.Errorf("%s policy: %w", p.name, err)
		}
		if err := srv.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
			Name: "global", Direction: p.direction, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
			Policies: []*api.Policy{{Name: p.name}},
		}}); err != nil {
			return fmt.Errorf("assign %s policy: %w", p.name, err)
		}
	}
	return nil
}

// statement is one entry of the export policy.
type statement struct {
	family  *api.Family
	tag     int        // in markers
	class   *class     // nil: the path has the attributes
	prepend int        // how often
	nextHop netip.Addr // invalid: the local address of the session
}

var (
	ipv4 = &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	ipv6 = &api.Family{Afi: api.Family_AFI_IP6, Safi: api.Family_SAFI_UNICAST}
)

// exported is what the export policy has for a peer; see admit.
type exported struct {
	named      bool
	statements []string
	marks      []string
}

// admit brings the statements of a peer up to date: its families, and the
// prepends and classes that paths ask for. s.mu is held.
func (s *Speaker) admit(p *peer) error {
	if !p.named {
		if err := s.server.AddDefinedSet(s.ctx, &api.AddDefinedSetRequest{DefinedSet: &api.DefinedSet{
			DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: p.set(),
			List: []string{netip.PrefixFrom(p.conf.Address.WithZone(""), p.conf.Address.BitLen()).String()},
		}}); err != nil {
			return fmt.Errorf("peer set: %w", err)
		}
		p.named = true
	}
	for n := range s.prepends {
		if err := s.permitBoth(p, statement{tag: n, prepend: n}); err != nil {
			return err
		}
	}
	for _, c := range s.classes {
		if c.users[p.conf.Name] == 0 {
			continue
		}
		if err := s.permitBoth(p, statement{tag: c.id, class: c, prepend: c.attrs.Prepend}); err != nil {
			return err
		}
	}
	return nil
}

// permitBoth adds the statements for the families of a peer, none while it must have
// no path.
func (s *Speaker) permitBoth(p *peer, st statement) error {
	if !p.admitted() {
		return nil
	}
	if p.conf.IPv4 && (p.extended || p.conf.Address.Is4()) {
		st.family = ipv4
		if err := s.permit(p, st); err != nil {
			return err
		}
	}
	if p.conf.IPv6 && (p.nextHop.IsValid() || p.conf.Address.Is6()) {
		st.family, st.nextHop = ipv6, p.nextHop
		return s.permit(p, st)
	}
	return nil
}

// recast makes the statements of a peer anew.
func (s *Speaker) recast(p *peer) {
	err := s.forbid(p)
	if err == nil {
		err = s.admit(p)
	}
	if err != nil {
		s.log.Debug("policy not changed", "peer", p.conf.Name, "err", err)
	}
}

// resend has the server look at all paths again for a peer that is Established.
func (s *Speaker) resend(p *peer) {
	if err := s.server.ResetPeer(s.ctx, &api.ResetPeerRequest{
		Address: p.conf.Address.String(), Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT,
	}); err != nil {
		s.log.Debug("paths not sent again", "peer", p.conf.Name, "err", err)
	}
}

// permit adds one statement unless it is there.
func (s *Speaker) permit(p *peer, st statement) error {
	name := fmt.Sprintf("%s-%d-%d-%s", p.set(), st.family.Afi, st.tag, st.nextHop)
	if slices.Contains(p.statements, name) {
		return nil
	}
	mark := p.mark(st.tag)
	if !slices.Contains(p.marks, mark) {
		if err := s.server.AddDefinedSet(s.ctx, &api.AddDefinedSetRequest{DefinedSet: &api.DefinedSet{
			DefinedType: api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY, Name: mark,
			List: []string{fmt.Sprintf("%d:%d:%d", uint32(markerASN), p.index, st.tag)},
		}}); err != nil {
			return fmt.Errorf("marker: %w", err)
		}
		p.marks = append(p.marks, mark)
	}
	actions := &api.Actions{}
	if st.class != nil {
		actions = st.class.actions()
	}
	actions.RouteAction = api.RouteAction_ROUTE_ACTION_ACCEPT
	if actions.LargeCommunity == nil {
		actions.LargeCommunity = &api.CommunityAction{Type: api.CommunityAction_TYPE_REMOVE, Communities: []string{markers}}
	}
	if st.prepend > 0 && p.conf.External() {
		actions.AsPrepend = &api.AsPrependAction{Asn: p.conf.LocalASN, Repeat: uint32(st.prepend)}
	}
	if st.nextHop.IsValid() {
		actions.Nexthop = &api.NexthopAction{Address: st.nextHop.String()}
	}
	if err := s.server.AddPolicy(s.ctx, &api.AddPolicyRequest{Policy: &api.Policy{
		Name: exportPolicy,
		Statements: []*api.Statement{{
			Name: name,
			Conditions: &api.Conditions{
				NeighborSet:       &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: p.set()},
				LargeCommunitySet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: mark},
				AfiSafiIn:         []*api.Family{st.family},
			},
			Actions: actions,
		}},
	}}); err != nil {
		return fmt.Errorf("export policy: %w", err)
	}
	p.statements = append(p.statements, name)
	return nil
}

// forbid removes the statements of a peer that is gone, or whose next hop has
// changed.
func (s *Speaker) forbid(p *peer) error {
	if err := s.removeStatements(p.statements); err != nil {
		return err
	}
	p.statements = nil
	for _, mark := range p.marks {
		if err := s.removeMark(mark); err != nil {
			return err
		}
	}
	p.marks = nil
	if p.named {
		p.named = false
		return s.server.DeleteDefinedSet(s.ctx, &api.DeleteDefinedSetRequest{All: true, DefinedSet: &api.DefinedSet{
			DefinedType: api.DefinedType_DEFINED_TYPE_NEIGHBOR, Name: p.set(),
		}})
	}
	return nil
}

func (s *Speaker) removeStatements(names []string) error {
	if len(names) == 0 {
		return nil
	}
	policy := &api.Policy{Name: exportPolicy}
	for _, name := range names {
		policy.Statements = append(policy.Statements, &api.Statement{Name: name})
	}
	if err := s.server.DeletePolicy(s.ctx, &api.DeletePolicyRequest{Policy: policy, PreserveStatements: true}); err != nil {
		return fmt.Errorf("export policy: %w", err)
	}
	for _, st := range policy.Statements {
		if err := s.server.DeleteStatement(s.ctx, &api.DeleteStatementRequest{Statement: st, All: true}); err != nil {
			return fmt.Errorf("export policy: %w", err)
		}
	}
	return nil
}

// mark names the set that has only the marker of the peer with this tag.
func (p *peer) mark(tag int) string { return fmt.Sprintf("%s-%d", p.set(), tag) }

func (s *Speaker) removeMark(mark string) error {
	if err := s.server.DeleteDefinedSet(s.ctx, &api.DeleteDefinedSetRequest{All: true, DefinedSet: &api.DefinedSet{
		DefinedType: api.DefinedType_DEFINED_TYPE_LARGE_COMMUNITY, Name: mark,
	}}); err != nil {
		return fmt.Errorf("marker: %w", err)
	}
	return nil
}

// index returns the number of a peer in markers.
func (s *Speaker) index(name string) int {
	i, ok := s.indices[name]
	if !ok {
		i = len(s.indices) + 1
		s.indices[name] = i
	}
	return i
}

// twins finds a peer that gets a path because another one with the same
// link-local address does.
func (s *Speaker) twins(want model.BGPPath) error {
	for i := range want.To {
		to := &want.To[i]
		for _, name := range to.Peers {
			p := s.peers[name]
			if p == nil || p.conf.Address.Zone() == "" {
				continue
			}
			for other, q := range s.peers {
				if other != name && q.conf.Address.WithZone("") == p.conf.Address.WithZone("") && !slices.Contains(to.Peers, other) {
					return fmt.Errorf("path %s: peers %q and %q have the same link-local address, so either both get a path, with the same attributes, or none", want.Prefix, name, other)
				}
			}
		}
	}
	return nil
}
