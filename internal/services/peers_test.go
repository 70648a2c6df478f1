package services

import (
	"slices"
	"strings"
	"testing"

	"lbd.dev/lbd/api/v1alpha1"
)

func TestPeers(t *testing.T) {
	change := func(p *v1alpha1.BGPPeer, f func(*v1alpha1.BGPPeerSpec)) *v1alpha1.BGPPeer { f(&p.Spec); return p }
	on := func(p *v1alpha1.BGPPeer, zone string) *v1alpha1.BGPPeer {
		return change(p, func(s *v1alpha1.BGPPeerSpec) {
			s.NodeSelectors = []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"zone": zone}}}
		})
	}
	fast := &v1alpha1.BFDProfile{}
	fast.Metadata.Name = "fast"
	fast.Default()
	keyed := &v1alpha1.BFDProfile{Spec: v1alpha1.BFDProfileSpec{AuthKeyFile: "/k"}}
	keyed.Metadata.Name = "keyed"
	keyed.Default()
	for _, c := range []struct {
		name     string
		objects  []any
		secrets  map[string]string
		want     string
		problems string
	}{
		{name: "two", objects: []any{peer("b", "198.51.100.2"), peer("a", "198.51.100.1")}, want: "a b"},
		{name: "one address on one node", objects: []any{peer("a", "198.51.100.1"), peer("b", "198.51.100.1")}, want: "a",
			problems: `BGPPeer b: spec.peerAddress "198.51.100.1" is also that of BGPPeer "a" on this node: there is no second session`},
		{name: "one address on two nodes", objects: []any{on(peer("a", "198.51.100.1"), "x"), on(peer("b", "198.51.100.1"), "y")}, want: "a b"},
		{name: "two identifiers", problems: "BGPPeer b: spec.routerID 2.2.2.2 is not the one of the other peers of this node, 1.1.1.1: there is no session", want: "a",
			objects: []any{change(peer("a", "198.51.100.1"), func(s *v1alpha1.BGPPeerSpec) { s.RouterID = "1.1.1.1" }),
				change(peer("b", "198.51.100.2"), func(s *v1alpha1.BGPPeerSpec) { s.RouterID = "2.2.2.2" })}},
		{name: "profile", want: "a+fast",
			objects: []any{fast, change(peer("a", "198.51.100.1"), func(s *v1alpha1.BGPPeerSpec) { s.BFDProfile = "fast" })}},
		{name: "no profile", problems: `BGPPeer a: spec.bfdProfile names "fast", and there is no valid BFDProfile of that name: there is no session`,
			objects: []any{change(peer("a", "198.51.100.1"), func(s *v1alpha1.BGPPeerSpec) { s.BFDProfile = "fast" })}},
		{name: "password", want: "a", secrets: map[string]string{"/p": "secret"},
			objects: []any{change(peer("a", "198.51.100.1"), func(s *v1alpha1.BGPPeerSpec) { s.PasswordFile = "/p" })}},
		{name: "no password", problems: "BGPPeer a: spec.passwordFile /p cannot be read on this node: there is no session",
			objects: []any{change(peer("a", "198.51.100.1"), func(s *v1alpha1.BGPPeerSpec) { s.PasswordFile = "/p" })}},
		{name: "no password, on another node", want: "a",
			objects: []any{on(change(peer("a", "198.51.100.1"), func(s *v1alpha1.BGPPeerSpec) { s.PasswordFile = "/p" }), "y")}},
		{name: "no key", problems: `BGPPeer a: spec.authKeyFile /k of BFDProfile "keyed" cannot be read on this node: there is no session`,
			objects: []any{keyed, change(peer("a", "198.51.100.1"), func(s *v1alpha1.BGPPeerSpec) { s.BFDProfile = "keyed" })}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Objects{Secrets: c.secrets}.with(c.objects...)
			slices.SortFunc(o.Peers, func(a, b *v1alpha1.BGPPeer) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
			w := world{objects: o, nodes: map[string]*Node{"n1": ready(map[string]string{"zone": "x"})}}
			r := w.build(t)
			var got []string
			for _, p := range r.Peers {
				name := p.Name
				if p.BFD != nil {
					name += "+" + p.BFD.Name
				}
				if want := c.secrets["/p"]; p.Password != want {
					t.Errorf("password %q", p.Password)
				}
				got = append(got, name)
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("peers %v, want %s", got, c.want)
			}
			if got := said(r.Problems); got != c.problems {
				t.Errorf("problems\n%s\nwant\n%s", got, c.problems)
			}
		})
	}
}

// TestPasswordSecret: a session has the password of its Secret, or there is none and it says
// why; what is wrong with one leaves the others alone.
func TestPasswordSecret(t *testing.T) {
	named := func(name, addr, secret, namespace, zone string) *v1alpha1.BGPPeer {
		p := peer(name, addr)
		p.Spec.PasswordSecret = &v1alpha1.SecretReference{Name: secret, Namespace: namespace}
		if zone != "" {
			p.Spec.NodeSelectors = []v1alpha1.LabelSelector{{MatchLabels: map[string]string{"zone": zone}}}
		}
		return p
	}
	o := Objects{Namespace: "lbd-system", Passwords: map[string]Password{"good": {Key: "k"}, "gone": {Lacks: "does not exist"}}}.with(
		named("a", "198.51.100.1", "good", "", ""), named("b", "198.51.100.2", "good", "lbd-system", "x"),
		named("c", "198.51.100.3", "gone", "", ""), named("d", "198.51.100.4", "unread", "", ""),
		named("e", "198.51.100.5", "good", "metallb-system", ""), named("f", "198.51.100.6", "good", "", "y"), peer("g", "198.51.100.7"))
	w := world{objects: o, nodes: map[string]*Node{"n1": ready(map[string]string{"zone": "x"})}}
	r := w.build(t)
	var got []string
	for _, p := range r.Peers {
		if (p.Lacks == "") != (p.Password == "k") && p.Name != "g" {
			t.Errorf("%s: password %q although %q", p.Name, p.Password, p.Lacks)
		}
		got = append(got, strings.TrimSuffix(p.Name+": "+p.Lacks, ": "))
	}
	const where = `spec.passwordSecret: Secret "`
	if want := `a
b
c: ` + where + `gone" in namespace "lbd-system" does not exist
d: ` + where + `unread" in namespace "lbd-system" is not read yet
e: spec.passwordSecret.namespace "metallb-system" is not that of lbd, "lbd-system"
f: its Secret is read only on nodes that spec.nodeSelectors match
g`; strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if got, want := said(r.Problems), `BGPPeer c: `+where+`gone" in namespace "lbd-system" does not exist: there is no session
BGPPeer d: `+where+`unread" in namespace "lbd-system" is not read yet: there is no session
BGPPeer e: spec.passwordSecret.namespace "metallb-system" is not that of lbd, "lbd-system": there is no session`; got != want {
		t.Errorf("problems\n%s\nwant\n%s", got, want)
	}
}
