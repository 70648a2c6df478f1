package lab

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"time"
)

// LBD is lbd itself.
type LBD struct {
	// Detection is gossip.detection; empty is the default, "lan".
	Detection string
	// NoIPv6 leaves the IPv6 VIP out, to compare with systems that have none.
	NoIPv6 bool
	// Reset is `connections: reset`: no ring.
	Reset bool
	// Balanced is advertise.l2.mode: balanced.
	Balanced bool
	// Drained is drain.timeout; 0 is the default, 30 s.
	Drained time.Duration
	// IPv6: the VIP and gossip have no IPv4, see Lab.OnlyIPv6.
	IPv6 bool
	// Apart: gossip goes by a network of its own, see Lab.Apart.
	Apart bool
	// Quorum is partition: quorum.
	Quorum bool
	// Forwarded: the VIPs are those of a LoadBalancer, and lead to the Lab.Backends.
	Forwarded bool
	// Source is that of the LoadBalancer; "" is the default.
	Source string
	// Sourced: the LoadBalancer has more addresses, and backends see all of them as clients.
	Sourced bool
	// Aliased: the backends are known by another port, too, where they speak unasked.
	Aliased bool
	// PipedLog has the daemons write their log to a pipe, see StallLog.
	PipedLog bool
}

// Name is "lbd", with "-" and the detection, "-reset" without ring, and "-balanced".
func (s *LBD) Name() string {
	name := "lbd"
	if s.Detection != "" {
		name += "-" + s.Detection
	}
	if s.Reset {
		name += "-reset"
	}
	if s.Balanced {
		name += "-balanced"
	}
	return name
}

// Configuration describes the system for reports.
func (s *LBD) Configuration() string {
	d := "default settings"
	if s.Detection != "" {
		d = "detection: " + s.Detection + ", else default settings"
	}
	if s.Reset {
		d += "; connections: reset, which is without ring"
	}
	if s.Balanced {
		d += "; advertise.l2.mode: balanced"
	}
	return d + "; https check of 127.0.0.1:6443/livez (every 500 ms, timeout 400 ms, fall 2, rise 1); encrypted gossip"
}

// VIPs are both families unless NoIPv6 or IPv6 is set.
func (s *LBD) VIPs() []netip.Addr {
	switch {
	case s.NoIPv6:
		return []netip.Addr{VIP4()}
	case s.IPv6:
		return []netip.Addr{VIP6()}
	}
	return []netip.Addr{VIP4(), VIP6()}
}

// addresses are the VIPs and, if Sourced, three more for each.
func (s *LBD) addresses() []netip.Addr {
	all := s.VIPs()
	if !s.Sourced {
		return all
	}
	for _, a := range s.VIPs() {
		for range 3 {
			a = a.Next()
			all = append(all, a)
		}
	}
	return all
}

// Election is the gossip port.
func (s *LBD) Election() []string {
	return []string{"udp dport 7947", "udp sport 7947", "tcp dport 7947", "tcp sport 7947"}
}

// Config is the path of the node's configuration file.
func (s *LBD) Config(n *Node) string { return filepath.Join(n.Dir, "lbd.yaml") }

// Socket is the path of the node's control socket.
func (s *LBD) Socket(n *Node) string { return filepath.Join(n.Dir, "lbd.sock") }

const lbdConfig = `apiVersion: lbd.dev/v1alpha1
kind: NodeConfiguration
nodeName: {{.Name}}
gossip:
  bindAddress: {{printf "%q" .IP}}
  port: 7947
  peers: [{{.Peers}}]
  keyFile: {{.Key}}
{{- if .Detection}}
  detection: {{.Detection}}
{{- end}}
{{- if .Reset}}
connections: reset
{{- end}}
{{- if .Drained}}
drain: {timeout: {{.Drained}}}
{{- end}}
http: {address: 127.0.0.1:7477}
socket: {{.Socket}}
---
apiVersion: lbd.dev/v1alpha1
{{- if .Backends}}
kind: LoadBalancer
{{- else}}
kind: VirtualIP
{{- end}}
metadata: {name: control-plane}
spec:
  addresses: [{{.VIPs}}]
{{- if .Backends}}
  ports:
    - {port: 6443}
    - {port: 7000}
    - {port: 7101}
    - {port: 7102, protocol: UDP}
    - {port: 7104}
{{- if .Aliased}}
    - {port: 7103, targetPort: 7101}
{{- end}}
{{- if .Source}}
  source: {{.Source}}
{{- end}}
{{- if .Sourced}}
  sourceAddresses: [{{.VIPs}}]
{{- end}}
  backends:
{{- range .Backends}}
    - {address: {{.IP4}}}
    - {address: "{{.IP6}}"}
{{- end}}
  healthCheck:
    https: {port: 6443, path: /livez, caFile: {{.CA}}, serverName: {{.Server}}}
{{- else}}
  healthCheck:
    https: {port: 6443, path: /livez, caFile: {{.CA}}}
{{- end}}
{{- if .Quorum}}
  partition: quorum
{{- end}}
{{- if .Balanced}}
  advertise: {l2: {mode: balanced}}
{{- end}}
`

// WriteConfig writes the node's configuration, and the gossip key of the lab if
// there is none yet.
func (s *LBD) WriteConfig(l *Lab, n *Node) error {
	return s.writeConfig(l, n, filepath.Join(l.Dir, "gossip.key"))
}

// WriteConfigWithOtherKey gives the node a gossip key of its own.
func (s *LBD) WriteConfigWithOtherKey(l *Lab, n *Node) error {
	return s.writeConfig(l, n, filepath.Join(n.Dir, "gossip.key"))
}

// WriteConfigWithSecret has the node read its gossip key from a mounted Secret.
func (s *LBD) WriteConfigWithSecret(l *Lab, n *Node, m *Mount) error {
	return s.writeConfig(l, n, filepath.Join(m.Dir, "gossip.key"))
}

func (s *LBD) writeConfig(l *Lab, n *Node, key string) error {
	if _, err := os.Stat(key); err != nil {
		if err := writeKey(key); err != nil {
			return err
		}
	}
	var peers, vips []string
	for _, p := range l.Nodes {
		peers = append(peers, fmt.Sprintf("%q", s.gossips(p)))
	}
	for _, v := range s.addresses() {
		vips = append(vips, fmt.Sprintf("%q", v))
	}
	var backends []*Node
	if s.Forwarded {
		backends = l.Backends
	}
	var b strings.Builder
	err := template.Must(template.New("lbd").Parse(lbdConfig)).Execute(&b, map[string]any{
		"Name": n.Name, "IP": s.gossips(n).String(), "Peers": strings.Join(peers, ", "), "Key": key,
		"Detection": s.Detection, "Reset": s.Reset, "Drained": s.Drained, "Balanced": s.Balanced, "Quorum": s.Quorum, "Socket": s.Socket(n), "VIPs": strings.Join(vips, ", "), "CA": l.pki.CA, "Backends": backends, "Source": s.Source, "Sourced": s.Sourced, "Aliased": s.Aliased, "Server": "kubernetes",
	})
	if err != nil {
		return fmt.Errorf("lbd config: %w", err)
	}
	return os.WriteFile(s.Config(n), []byte(b.String()), 0o600)
}

// WithoutObjects leaves a node nothing but the NodeConfiguration; its daemon reads that again.
func (s *LBD) WithoutObjects(n *Node) error {
	old, err := os.ReadFile(s.Config(n))
	if err != nil {
		return err
	}
	now, _, _ := strings.Cut(string(old), "---\n")
	return errors.Join(os.WriteFile(s.Config(n), []byte(now), 0o600), n.Reload())
}

// Without takes a VIP out of the configuration of a node, whose daemon reads it again.
func (s *LBD) Without(n *Node, vip netip.Addr) error {
	old, err := os.ReadFile(s.Config(n))
	if err != nil {
		return err
	}
	q := fmt.Sprintf("%q", vip)
	now := strings.NewReplacer(q+", ", "", ", "+q, "").Replace(string(old))
	return errors.Join(os.WriteFile(s.Config(n), []byte(now), 0o600), n.Reload())
}

func writeKey(file string) error { return os.WriteFile(file, []byte(NewKey()+"\n"), 0o600) }

// NewKey is a line of a keyring.
func NewKey() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return base64.StdEncoding.EncodeToString(key)
}

// LBD is the program that a node has.
func (l *Lab) LBD(n *Node) string { return cmp.Or(n.LBD, l.Bin.LBD) }

// Start writes the configuration unless there is one, and starts the daemon.
func (s *LBD) Start(_ context.Context, l *Lab, n *Node) error {
	if _, err := os.Stat(s.Config(n)); err != nil {
		if err := s.WriteConfig(l, n); err != nil {
			return err
		}
	}
	argv, err := s.logCommand(n, []string{l.LBD(n), "run", "--config", s.Config(n)})
	if err != nil {
		return err
	}
	p, err := l.Start(&n.Host, "lbd", nil, argv...)
	if err != nil {
		return err
	}
	n.Daemon = p
	n.starts++
	return nil
}

// Status is the part of `lbd status -o json` that the lab looks at.
type Status struct {
	Node     string `json:"node"`
	Draining bool   `json:"draining"`
	Settled  bool   `json:"settled"`
	Version  string `json:"version"`
	Members  []struct {
		Name    string `json:"name"`
		State   string `json:"state"`
		Version string `json:"version"`
	} `json:"members"`
	Config struct {
		Generation uint64 `json:"generation"`
	} `json:"config"`
	Gossip struct {
		KeyMismatches uint64 `json:"keyMismatches"`
		Error         string `json:"error"`
	} `json:"gossip"`
	VIPs []struct {
		Address   netip.Addr `json:"address"`
		Mode      string     `json:"mode"`
		Owner     string     `json:"owner"`
		Reason    string     `json:"reason"`
		Detail    string     `json:"detail"`
		Healthy   bool       `json:"healthy"`
		Bound     bool       `json:"bound"`
		Announced bool       `json:"announced"`
		Epoch     uint64     `json:"epoch"`
		Duplicate string     `json:"duplicate"`
	} `json:"vips"`
	LoadBalancers []struct {
		Name     string `json:"name"`
		Backends []struct {
			Backend string `json:"backend"`
			State   string `json:"state"`
		} `json:"backends"`
	} `json:"loadBalancers"`
}

// Status asks the node's daemon.
func (s *LBD) Status(ctx context.Context, l *Lab, n *Node) (*Status, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	out, err := l.Exec(ctx, &n.Host, l.LBD(n), "status", "--socket", s.Socket(n), "-o", "json")
	if err != nil {
		return nil, err
	}
	var st Status
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	return &st, nil
}

// Ready wants a settled node that sees every live node, may own every VIP, and has the same servers
// in service as the others: one that was cut off has not checked them all again at once.
func (s *LBD) Ready(ctx context.Context, l *Lab, n *Node) error {
	return s.ready(ctx, l, n, "Owner", "Standby")
}

// Able is Ready, but a node that keeps a VIP, silently, for connections that are still
// open counts too: it does so for as long as they last.
func (s *LBD) Able(ctx context.Context, l *Lab, n *Node) error {
	return s.ready(ctx, l, n, "Owner", "Standby", "Releasing")
}

func (s *LBD) ready(ctx context.Context, l *Lab, n *Node, reasons ...string) error {
	if !n.Daemon.Alive() {
		return fmt.Errorf("%s: the daemon has ended", n.Name)
	}
	st, err := s.Status(ctx, l, n)
	if err != nil {
		return err
	}
	alive := map[string]bool{n.Name: true}
	for _, m := range st.Members {
		alive[m.Name] = m.State == "alive"
	}
	for _, p := range l.Nodes {
		if p.Daemon.Alive() && !alive[p.Name] {
			return fmt.Errorf("%s: does not see %s", n.Name, p.Name)
		}
	}
	if !st.Settled || st.Draining || len(st.VIPs) != len(s.addresses()) {
		return fmt.Errorf("%s: settled %v, draining %v, %d VIPs", n.Name, st.Settled, st.Draining, len(st.VIPs))
	}
	for _, v := range st.VIPs {
		if !slices.Contains(reasons, v.Reason) {
			return fmt.Errorf("%s: %s: %s %s", n.Name, v.Address, v.Reason, v.Detail)
		}
	}
	if len(st.LoadBalancers) == 0 {
		return nil
	}
	first := l.Nodes[slices.IndexFunc(l.Nodes, func(p *Node) bool { return p.Daemon.Alive() })]
	other, err := s.Status(ctx, l, first)
	if err == nil && !reflect.DeepEqual(st.LoadBalancers, other.LoadBalancers) {
		err = fmt.Errorf("%s: servers %v, and %s: %v", n.Name, st.LoadBalancers, first.Name, other.LoadBalancers)
	}
	return err
}

// Leftovers lists what lbd left on a node: VIPs in its kernel and nftables tables
// of its name.
func (c *Cluster) Leftovers(ctx context.Context, n *Node) ([]string, error) {
	var left []string
	for _, v := range c.Eyes.VIPs {
		held, err := n.Holds(v)
		if err != nil {
			return nil, err
		}
		if held {
			left = append(left, v.String())
		}
	}
	out, err := c.Exec(ctx, &n.Host, "nft", "list", "tables")
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 3 && (f[2] == "lbd" || f[2] == "lbd-relay") {
			left = append(left, strings.TrimSpace(line))
		}
	}
	return left, err
}

// Drain runs `lbd drain`. It waits for open connections for 8 s.
func (s *LBD) Drain(ctx context.Context, l *Lab, n *Node) error {
	return s.DrainFor(ctx, l, n, 8*time.Second)
}

// DrainFor runs `lbd drain` and waits for open connections no longer than limit.
func (s *LBD) DrainFor(ctx context.Context, l *Lab, n *Node, limit time.Duration) error {
	_, err := l.Exec(ctx, &n.Host, l.LBD(n), "drain", "--socket", s.Socket(n), "--timeout", limit.String())
	return err
}

// Undrain runs `lbd undrain`.
func (s *LBD) Undrain(ctx context.Context, l *Lab, n *Node) error {
	_, err := l.Exec(ctx, &n.Host, l.LBD(n), "undrain", "--socket", s.Socket(n))
	return err
}
