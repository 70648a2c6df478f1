package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestSourceReloadsBGP(t *testing.T) {
	pw := filepath.Join(t.TempDir(), "pw")
	key := filepath.Join(t.TempDir(), "key")
	put(t, pw, "secret one\n")
	put(t, key, "secret a")
	peer := peerDoc("tor1", "peerAddress: 10.0.0.1, bfdProfile: p, passwordFile: "+pw) + doc("BFDProfile", "p", "authType: keyed-sha1, authKeyFile: "+key)
	bubble(t, map[string]string{"a.yaml": bgpNode, "b.yaml": peer}, func(r *running) {
		r.after(time.Minute, 1, 0)
		if p := r.view.Peers; len(p) != 1 || p[0].Password != "secret one" || p[0].BFD.AuthKey != "secret a" || r.view.BGP.ListenPort != 179 {
			t.Errorf("%+v %+v", p, r.view.BGP)
		}
		put(t, pw, "secret number two\n")
		r.after(3*time.Second, 2, 1)
		put(t, key, "secret number b")
		r.after(3*time.Second, 3, 2)
		if p := r.view.Peers; p[0].Password != "secret number two" || p[0].BFD.AuthKey != "secret number b" {
			t.Errorf("%+v", p)
		}
		// A file that goes bad changes nothing, and comes back by itself.
		if err := os.Remove(pw); err != nil {
			t.Fatal(err)
		}
		r.after(3*time.Second, 3, 2)
		if got := r.Status().Err; !strings.HasPrefix(got, pw+": no such file") || r.view.Peers[0].Password != "secret number two" {
			t.Errorf("%q", got)
		}
		put(t, pw, "secret three\n")
		r.after(3*time.Second, 4, 3)
		r.put("b.yaml", peerDoc("tor1", "peerAddress: 10.0.0.1")+peerDoc("tor2", "peerAddress: 10.0.0.2"))
		r.after(3*time.Second, 5, 4)
		if p := r.view.Peers; len(p) != 2 || p[0].Password != "" || p[0].BFD != nil {
			t.Errorf("%+v", p)
		}
		if strings.Contains(r.log, "secret") {
			t.Errorf("the log shows a password:\n%s", r.log)
		}
	})
}

func TestSourceRefusesAnotherRouterID(t *testing.T) {
	const rest = " cannot change while lbd runs, which uses "
	const end = "; `lbd restart` takes it, or put it back"
	node := func(bgp string) string {
		return headNode + "nodeName: m1\ngossip: {insecure: true}\nbgp: {" + bgp + "}\n"
	}
	peer := func(id string) string { return peerDoc("a", "peerAddress: 10.0.0.1"+id) }
	elsewhere := func(id string) string { return peer(id + ", nodeSelectors: [{matchLabels: {rack: b}}]") }
	box := "---\n" + strings.Replace(goodListener, "  passwordFile: /nowhere/masters.password\n", "", 1)
	for name, tt := range map[string]struct{ before, after, want string }{
		"listen":          {node(""), node("listenAddresses: [10.0.0.1, '::']"), `a.yaml:5: NodeConfiguration "m1": bgp.listenAddresses: [10.0.0.1 ::]` + rest + `none` + end},
		"no listen":       {node("listenAddresses: [10.0.0.1]"), node(""), `a.yaml:5: NodeConfiguration "m1": bgp.listenAddresses: "none"` + rest + `[10.0.0.1]` + end},
		"port":            {node(""), node("listenPort: 1790"), `a.yaml:5: NodeConfiguration "m1": bgp.listenPort: 1790` + rest + `179` + end},
		"ID":              {node(""), node("routerID: 1.1.1.1"), `a.yaml:5: NodeConfiguration "m1": bgp.routerID: "1.1.1.1"` + rest + `the default` + end},
		"ID of a peer":    {node("") + peer(""), node("") + peer(", routerID: 1.1.1.1"), `a.yaml:10: BGPPeer "a": spec.routerID: "1.1.1.1"` + rest + `the default` + end},
		"no ID of a peer": {node("") + peer(", routerID: 1.1.1.1"), node("") + peer(""), `a.yaml:5: NodeConfiguration "m1": bgp.routerID: was that of a BGPPeer and` + rest + `1.1.1.1` + end},
		"other peer":      {node("") + elsewhere(", routerID: 1.1.1.1"), node("") + elsewhere(", routerID: 2.2.2.2"), ""},
		"peer of a box":   {node("") + box, node("") + box + peer(", routerID: 2.2.2.2"), `a.yaml:18: BGPPeer "a": spec.routerID: "2.2.2.2"` + rest + `the default` + end},
		"first peer":      {node(""), node("") + peer(", routerID: 2.2.2.2"), ""},
		"last peer":       {node("") + peer(", routerID: 2.2.2.2"), node(""), ""},
		"same as node":    {node("routerID: 1.1.1.1") + peer(""), node("routerID: 1.1.1.1") + peer(", routerID: 1.1.1.1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, map[string]string{"a.yaml": tt.before}, func(r *running) {
				r.put("a.yaml", tt.after)
				time.Sleep(3 * time.Second)
				if got := strings.ReplaceAll(r.Status().Err, r.dir+"/", ""); got != tt.want {
					t.Errorf("got  %s\nwant %s", got, tt.want)
				}
				if applied := r.Status().Generation == 2; applied != (tt.want == "") {
					t.Errorf("applied: %v", applied)
				}
			})
		})
	}
}
