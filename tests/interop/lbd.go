package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/tests/lab"
)

// LBD is lbd with BGP sessions to every ToR, one for each family.
type LBD struct {
	lab.LBD
	// NoBFD leaves failures to the hold time of 9 s.
	NoBFD bool
	// GracefulRestart asks the routers to keep paths while a daemon restarts.
	GracefulRestart bool
	// ShutdownDelay is gracefulShutdownDelay; 0 is its default.
	ShutdownDelay time.Duration
	// LogLevel is log.level; empty is its default.
	LogLevel string
	// IBGP has the routers in the AS of the nodes.
	IBGP bool
	// Sources has machines behind a LoadBalancer see all its addresses as clients.
	Sources bool
	// Addresses are the VIPs; none is VIP4 and VIP6.
	Addresses []netip.Addr
}

// Name is "lbd", with "-gr" for graceful restart, "-nobfd" without BFD and "-reset"
// without rings.
func (s *LBD) Name() string {
	name := "lbd"
	if s.GracefulRestart {
		name += "-gr"
	}
	if s.NoBFD {
		name += "-nobfd"
	}
	if s.Reset {
		name += "-reset"
	}
	return name
}

// Configuration describes it for reports.
func (s *LBD) Configuration() string {
	c := []string{"hold 9 s", "connect 1 s", "https check of 127.0.0.1:6443/livez at its defaults"}
	if s.NoBFD {
		c = append(c, "no BFD")
	} else {
		c = append(c, "BFD 100 ms x 3")
	}
	if s.GracefulRestart {
		c = append(c, "graceful restart")
	}
	return strings.Join(c, ", ")
}

// VIPs are Addresses, or one of each family.
func (s *LBD) VIPs() []netip.Addr {
	if len(s.Addresses) > 0 {
		return s.Addresses
	}
	return []netip.Addr{VIP4(), VIP6()}
}

// BFD tells whether there are BFD sessions.
func (s *LBD) BFD() bool {
	return !s.NoBFD
}

const nodeConfig = `apiVersion: lbd.dev/v1alpha1
kind: NodeConfiguration
nodeName: {{.Name}}
gossip:
  bindAddress: {{.IP4}}
  port: 7947
  peers: [{{.Peers}}]
  insecure: true
http: {address: 127.0.0.1:7477}
socket: {{.Dir}}/lbd.sock
log: {level: {{or .S.LogLevel "info"}}}
{{- if .S.Reset}}
connections: reset
{{- end}}
`

const fabricConfig = `---
apiVersion: lbd.dev/v1alpha1
kind: BFDProfile
metadata: {name: fast}
spec: {transmitInterval: 100, receiveInterval: 100, detectMultiplier: 3}
{{- range .Routers}}
---
apiVersion: lbd.dev/v1alpha1
kind: BGPPeer
metadata: {name: {{.Name}}}
spec:
  myASN: {{$.ASN}}
  peerASN: {{.ASN}}
  peerAddress: "{{.Address}}"
  families: [{{.Family}}]
{{- if $.S.BFD}}
  bfdProfile: fast
{{- end}}
{{- if $.S.GracefulRestart}}
  enableGracefulRestart: true
{{- end}}
{{- if $.S.ShutdownDelay}}
  gracefulShutdownDelay: {{$.S.ShutdownDelay}}
{{- end}}
{{- end}}
{{- range $i, $vips := .VIPs}}
---
apiVersion: lbd.dev/v1alpha1
kind: {{if $.Backends}}LoadBalancer{{else}}VirtualIP{{end}}
metadata: {name: control-plane{{if $i}}-{{$i}}{{end}}}
spec:
  addresses: [{{$vips}}]
{{- if $.Backends}}
{{- if $.S.Sources}}
  sourceAddresses: [{{$vips}}]
{{- end}}
  ports: [{port: 6443}, {port: 7000}, {port: 7101}]
  backends:
{{- range $.Backends}}
    - {address: {{.IP4}}}
    - {address: "{{.IP6}}"}
{{- end}}
  healthCheck:
    https: {port: 6443, path: /livez, caFile: {{$.CA}}, serverName: kubernetes}
  advertise:
    l2: {interfaces: [eth0]}
    bgp: {}
{{- else}}
  healthCheck:
    https: {port: 6443, path: /livez, caFile: {{$.CA}}}
  advertise:
    bgp: {}
{{- end}}
{{- end}}
`

// perObject is how many addresses one VirtualIP may have.
const perObject = 64

type routerPeer struct {
	Name    string
	ASN     int
	Address netip.Addr
	Family  string
}

// writeConfig writes NodeConfiguration and what follows it, a template with the
// node's Name, IP4 and Dir.
func (s *LBD) writeConfig(n *Net, m *lab.Node, more string) error {
	var peers, vips []string
	for _, p := range n.Nodes {
		peers = append(peers, p.IP4.String())
	}
	for some := range slices.Chunk(s.VIPs(), perObject) {
		quoted := make([]string, len(some))
		for i, v := range some {
			quoted[i] = strconv.Quote(v.String())
		}
		vips = append(vips, strings.Join(quoted, ", "))
	}
	var routers []routerPeer
	for i, h := range n.ToRs {
		asn := torASN(i, s.IBGP)
		routers = append(routers, routerPeer{h.Name + "-v4", asn, h.IP4, "ipv4"}, routerPeer{h.Name + "-v6", asn, h.IP6, "ipv6"})
	}
	var backends []*lab.Node
	if s.Forwarded {
		backends = n.Backends
	}
	t, err := template.New("lbd").Funcs(templateFuncs()).Parse(nodeConfig + more)
	if err != nil {
		return fmt.Errorf("lbd config: %w", err)
	}
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{
		"Name": m.Name, "IP4": m.IP4, "Dir": m.Dir, "Peers": strings.Join(peers, ", "), "S": s, "ASN": NodeASN,
		"Routers": routers, "VIPs": vips, "CA": n.CA(), "Backends": backends,
	})
	if err != nil {
		return fmt.Errorf("lbd config: %w", err)
	}
	// Renamed into place: the daemon reads it whenever it changes.
	file := s.Config(m)
	if err := os.WriteFile(file+".new", b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("lbd config: %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return fmt.Errorf("lbd config: %w", err)
	}
	return nil
}

// templateFuncs has seq, the numbers from 0 to n-1.
func templateFuncs() template.FuncMap {
	return template.FuncMap{"seq": func(n int) []int {
		out := make([]int, n)
		for i := range out {
			out[i] = i
		}
		return out
	}}
}

// Start writes the configuration and starts the daemon.
func (s *LBD) Start(ctx context.Context, n *Net, m *lab.Node) error {
	return s.startWith(ctx, n, m, fabricConfig)
}

func (s *LBD) startWith(ctx context.Context, n *Net, m *lab.Node, more string) error {
	if err := s.writeConfig(n, m, more); err != nil {
		return err
	}
	return s.LBD.Start(ctx, n.Lab, m)
}

// Configure gives the daemon of a node a new configuration and has it read.
func (s *LBD) Configure(n *Net, m *lab.Node) error {
	if err := s.writeConfig(n, m, fabricConfig); err != nil {
		return err
	}
	return m.Reload()
}

// Drain runs `lbd drain`; Undrain undoes it.
func (s *LBD) Drain(ctx context.Context, n *Net, m *lab.Node) error {
	return s.LBD.Drain(ctx, n.Lab, m)
}

// Undrain runs `lbd undrain`.
func (s *LBD) Undrain(ctx context.Context, n *Net, m *lab.Node) error {
	return s.LBD.Undrain(ctx, n.Lab, m)
}

// Clean has nothing to do: the kernel removes the VIPs.
func (s *LBD) Clean(context.Context, *Net, *lab.Node) error { return nil }

// Status asks the node's daemon.
func (s *LBD) Status(ctx context.Context, n *Net, m *lab.Node) (*v1alpha1.NodeStatus, error) {
	out, err := s.status(ctx, n, m)
	if err != nil {
		return nil, err
	}
	st := &v1alpha1.NodeStatus{}
	if err := json.Unmarshal([]byte(out), st); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return st, nil
}

func (s *LBD) status(ctx context.Context, n *Net, m *lab.Node) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return n.Exec(ctx, &m.Host, n.LBD(m), "status", "--socket", s.Socket(m), "-o", "json")
}
