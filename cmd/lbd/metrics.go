package main

import (
	"log/slog"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/api/v1alpha1"
	"lbd.dev/lbd/internal/address"
	"lbd.dev/lbd/internal/bgp"
	"lbd.dev/lbd/internal/config"
	"lbd.dev/lbd/internal/control"
	"lbd.dev/lbd/internal/forward"
	"lbd.dev/lbd/internal/gossip"
	"lbd.dev/lbd/internal/health"
	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/agent"
	"lbd.dev/lbd/internal/k8s/controller"
	"lbd.dev/lbd/internal/k8s/machines"
	"lbd.dev/lbd/internal/k8s/review"
	"lbd.dev/lbd/internal/k8s/speaker"
	"lbd.dev/lbd/internal/layer2"
	"lbd.dev/lbd/internal/logqueue"
	"lbd.dev/lbd/internal/notify"
	"lbd.dev/lbd/internal/sockdiag"
	"lbd.dev/lbd/internal/tenants/propagate"
)

// adapterMetrics reads the counters of the adapters at scrape.
type adapterMetrics struct {
	gossip  *gossip.Gossip
	layer2  *layer2.Driver
	address *address.Driver
	health  *health.Source
	bgp     *bgp.Driver
	cluster *speaker.Source // nil without a cluster
	// machines is nil without a management cluster.
	machines *machines.Source
	notify   *notify.Driver
	forward  *forward.Driver
	config   *config.Source
	log      *logqueue.Queue
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// metrics takes what a scrape finds.
type metrics chan<- prometheus.Metric

func (c metrics) count(d *prometheus.Desc, n uint64, labels ...string) {
	c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func (c metrics) gauge(d *prometheus.Desc, x float64, labels ...string) {
	c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, x, labels...)
}

// truth is a gauge that is 1 or 0.
func (c metrics) truth(d *prometheus.Desc, is bool, labels ...string) {
	x := 0.0
	if is {
		x = 1
	}
	c.gauge(d, x, labels...)
}

var (
	descSent         = desc("lbd_heartbeats_sent_total", "Heartbeats sent.", "peer")
	descReceived     = desc("lbd_heartbeats_received_total", "Heartbeats received.", "peer")
	descMissed       = desc("lbd_heartbeats_missed_total", "Heartbeats that were sent by the peer but did not arrive.", "peer")
	descSuspicions   = desc("lbd_heartbeat_suspicions_total", "Times that a heartbeat of an owner was missed by its first successor, by whether that one asked the wire or had asked too often.", "peer", "asked")
	descLate         = desc("lbd_heartbeats_late_total", "Times that heartbeats of the peer were overdue.", "peer")
	descDropped      = desc("lbd_gossip_dropped_total", "Gossip messages dropped, by cause.", "cause")
	descLogLost      = desc("lbd_log_lines_dropped_total", "Lines of the log that were dropped, since nobody took them.")
	descKeys         = desc("lbd_gossip_key_mismatches_total", "Gossip messages that no key of the keyring opens.")
	descHealthRun    = desc("lbd_health_checks_total", "Runs of health checks.", "check", "result")
	descHealthDur    = desc("lbd_health_check_duration_seconds", "Duration of the last run of a health check.", "check")
	descAnnounced    = desc("lbd_announcements_total", "Gratuitous ARP requests and unsolicited neighbour advertisements sent.")
	descProbes       = desc("lbd_probes_total", "Probe frames sent before a takeover.")
	descAnswered     = desc("lbd_probe_series_total", "Probe series that ended, by what the wire said.", "result")
	descConflicts    = desc("lbd_conflicts_total", "Frames in which a foreign host used an announced VIP.")
	descDefences     = desc("lbd_defences_total", "Announcements that answered a conflict.")
	descAnswers      = desc("lbd_answers_total", "ARP requests and neighbour solicitations for VIPs that are not bound, answered or not since there were too many.", "result")
	descLapses       = desc("lbd_lapses_total", "Times that the process stood still for so long that others may have taken the VIPs that are not bound.")
	descRenewals     = desc("lbd_address_renewals_total", "Lifetimes of addresses that were set anew.")
	descReadds       = desc("lbd_address_readds_total", "Addresses bound again that somebody had removed.")
	descExpired      = desc("lbd_address_expirations_total", "Addresses that the kernel removed since nobody renewed them.")
	descErrors       = desc("lbd_driver_errors_total", "Errors of drivers.", "driver")
	descBFDIn        = desc("lbd_bfd_control_packet_input", "BFD Control packets of the peer that were accepted.", "peer")
	descBFDOut       = desc("lbd_bfd_control_packet_output", "BFD Control packets sent to the peer.", "peer")
	descBFDUps       = desc("lbd_bfd_session_up_events", "Times that the BFD session came up.", "peer")
	descBFDDowns     = desc("lbd_bfd_session_down_events", "Times that the BFD session went down.", "peer")
	descNotify       = desc("lbd_notify_runs_total", "Runs of notify programs that have ended.", "vip", "result")
	descConnected    = desc("lbd_kubernetes_connected", "Whether the objects of the cluster are being watched.")
	descProblems     = desc("lbd_kubernetes_problems", "What objects of the cluster ask for and do not get on this node.")
	descDaemonWrites = desc("lbd_machines_writes_total", "Writes to the management cluster, by what was written, or why nothing was.", "what")
	descRefused      = desc("lbd_configuration_refused", "Whether the files of the configuration are refused as they are now.")
	descOpened       = desc("lbd_backend_connections_total", "Connections that this node has sent to the backend, or has taken up from another node.", "backend", "protocol")
	descOpen         = desc("lbd_backend_connections", "Connections to the backend that this node knows and that are open.", "backend", "protocol")
	descHalfOpen     = desc("lbd_backend_connections_half_open", "Of the open connections of TCP those whose client has not answered the backend yet.", "backend", "protocol")
	descPorts        = desc("lbd_backend_ports_used_ratio", "Share of the ports of the source address that are taken by connections to the backend, of the source that has fewest left.", "backend", "protocol")
	descToBackend    = desc("lbd_backend_received_bytes_total", "Bytes that this node has forwarded to the backend.", "backend", "protocol")
	descFromBackend  = desc("lbd_backend_sent_bytes_total", "Bytes that this node has forwarded from the backend.", "backend", "protocol")
	descUncounted    = desc("lbd_backends_uncounted", "Pairs of a port of an address and a backend whose connections are not counted, since there are too many.")
	descTracked      = desc("lbd_conntrack_entries", "Connections that connection tracking of the kernel knows.")
	descTrackable    = desc("lbd_conntrack_limit", "Connections that connection tracking of the kernel can know.")
	descTrackDropped = desc("lbd_conntrack_dropped_total", "Packets that connection tracking of the kernel dropped.")
	descTrackClashed = desc("lbd_conntrack_clashes_total", "Those of the dropped packets that began a connection for which no port was left, or that came twice at a time.")
	descExpiry       = desc("lbd_kubernetes_credentials_expiry_timestamp_seconds", "When the token or the client certificate of a kubeconfig file ends, since 1970.", "kubeconfig")
	descBFDDrops     = desc("lbd_bfd_packets_dropped_total", "BFD packets of the peer that were not accepted, by reason.", "peer", "reason")
)

// Describe implements prometheus.Collector; the set is not fixed (labels come and
// go), which an empty description allows.
func (m *adapterMetrics) Describe(chan<- *prometheus.Desc) {}

func (m *adapterMetrics) Collect(ch chan<- prometheus.Metric) {
	c := metrics(ch)
	c.count(descLogLost, m.log.Lost())
	g := m.gossip.Stats()
	for _, p := range g.Peers {
		c.count(descSent, p.Sent, string(p.Name))
		c.count(descReceived, p.Received, string(p.Name))
		c.count(descMissed, p.Missed, string(p.Name))
		c.count(descLate, p.Late, string(p.Name))
		c.count(descSuspicions, p.Suspicions, string(p.Name), "true")
		c.count(descSuspicions, p.Unasked, string(p.Name), "false")
	}
	for cause, n := range g.Dropped {
		c.count(descDropped, n, cause)
	}
	c.count(descKeys, g.KeyMismatches.Count)
	for name, h := range m.health.Stats() {
		c.count(descHealthRun, h.Successes, name, "success")
		c.count(descHealthRun, h.Degraded, name, "degraded")
		c.count(descHealthRun, h.Failures, name, "failure")
		c.gauge(descHealthDur, h.Last.Seconds(), name)
	}
	l := m.layer2.Stats()
	c.count(descAnnounced, l.Announcements)
	c.count(descProbes, l.Probes)
	c.count(descAnswered, l.ProbesAnswered, "answered")
	c.count(descAnswered, l.ProbesSilent, "silent")
	c.count(descConflicts, l.Conflicts)
	c.count(descDefences, l.Defences)
	c.count(descAnswers, l.Answers, "sent")
	c.count(descAnswers, l.Dropped, "dropped")
	c.count(descLapses, l.Lapses)
	c.count(descErrors, l.Errors, "layer2")
	a := m.address.Stats()
	c.count(descRenewals, a.Renewals)
	c.count(descReadds, a.Readds)
	c.count(descExpired, a.Expirations)
	c.count(descErrors, a.Errors, "address")
	for _, s := range m.bgp.BFDStats() {
		c.count(descBFDIn, s.In, s.Peer)
		c.count(descBFDOut, s.Out, s.Peer)
		c.count(descBFDUps, s.Ups, s.Peer)
		c.count(descBFDDowns, s.Downs, s.Peer)
		for reason, n := range s.Dropped {
			c.count(descBFDDrops, n, s.Peer, reason)
		}
	}
	m.collectNotify(c)
	m.collectHost(c)
	m.collectForward(c)
	m.collectCluster(c)
	if m.machines != nil {
		for what, n := range m.machines.Writes() {
			c.count(descDaemonWrites, n, what)
		}
	}
}

// collectForward reads what the kernel counts of connections to backends. What cannot be read is
// left out.
func (m *adapterMetrics) collectForward(c metrics) {
	counts, err := m.forward.Count()
	if err != nil {
		m.log.Logger.Debug("connections to backends cannot be counted", "part", "forward", "err", err)
	}
	open := make(map[forward.Counted]int, len(counts.Servers))
	for way, n := range counts.Open {
		open[way.Counted] += n
	}
	ports := make(map[forward.Counted]float64, len(counts.Servers))
	for at, p := range counts.Ports {
		ports[at.Counted] = max(ports[at.Counted], p.Used())
	}
	for at, n := range counts.Servers {
		labels := []string{at.Server.String(), at.Protocol.String()}
		c.count(descOpened, n.Opened, labels...)
		c.count(descToBackend, n.Received, labels...)
		c.count(descFromBackend, n.Sent, labels...)
		c.gauge(descOpen, float64(open[at]), labels...)
		c.gauge(descHalfOpen, float64(counts.HalfOpen[at]), labels...)
		c.gauge(descPorts, ports[at], labels...)
	}
	c.gauge(descUncounted, float64(counts.Uncounted))
}

// collectNotify reads how programs ended.
func (m *adapterMetrics) collectNotify(c metrics) {
	for r, n := range m.notify.Runs() {
		result := "failure"
		if r.OK {
			result = "success"
		}
		c.count(descNotify, n, r.VIP, result)
	}
}

// collectHost reads what the daemon finds on its host.
func (m *adapterMetrics) collectHost(c metrics) {
	c.truth(descRefused, m.config.Status().Err != "")
	if entries, limit, ok := sockdiag.Table(); ok {
		c.gauge(descTracked, float64(entries))
		c.gauge(descTrackable, float64(limit))
	}
	if dropped, ok := sockdiag.Dropped(); ok {
		c.count(descTrackDropped, dropped.All)
		c.count(descTrackClashed, dropped.Clashed)
	}
	for _, file := range kubeconfigs(&m.config.Config().Node) {
		if end, ok := k8s.CredentialsEnd(file); ok {
			c.gauge(descExpiry, float64(end.Unix()), file)
		}
	}
}

// kubeconfigs are the files by which a daemon reaches API servers, each once. In a pod
// kubelet renews the token.
func kubeconfigs(n *config.Node) []string {
	var files []string
	if n.Kubernetes != nil {
		files = append(files, n.Kubernetes.Kubeconfig)
	}
	if n.Machines != nil {
		files = append(files, n.Machines.Kubeconfig)
	}
	slices.Sort(files)
	return slices.DeleteFunc(slices.Compact(files), func(f string) bool { return f == "" })
}

// collectCluster reads what the source of the cluster counts.
func (m *adapterMetrics) collectCluster(c metrics) {
	if m.cluster == nil {
		return
	}
	st := m.cluster.Status()
	c.truth(descConnected, st.Connected)
	c.gauge(descProblems, float64(len(st.Problems)))
	collectRequests(st.Requests, c)
}

// controllerMetrics reads the counters of the controller at scrape. Those of pools
// have the names and meanings of MetalLB, with lbd's prefix.
type controllerMetrics struct {
	controller *controller.Controller
	client     *k8s.Client
	log        *logqueue.Queue
}

var (
	descLeader      = desc("lbd_controller_leader", "1 if this process decides.")
	descWrites      = desc("lbd_controller_writes_total", "Statuses of Services that were written, by result.", "result")
	descMachines    = desc("lbd_controller_machine_writes_total", "What was written for Machines, by what it was, or by how it failed.", "result")
	descEvents      = desc("lbd_controller_events_total", "Events, by result.", "result")
	descServices    = desc("lbd_allocator_services", "Services of type LoadBalancer, of all classes.")
	descWaiting     = desc("lbd_allocator_services_waiting", "Services that would take more addresses than they have.")
	descAssigned    = desc("lbd_allocator_assigned_total", "Addresses given to Services.")
	descReleased    = desc("lbd_allocator_released_total", "Addresses taken from Services, or left by them.")
	descFailures    = desc("lbd_allocator_failures_total", "Times that a Service began to fail, by rule.", "rule")
	descRepairs     = desc("lbd_allocator_repairs_total", "Statuses of Services put right after somebody else had changed them.")
	descPoolSize    = desc("lbd_allocator_addresses_total", "Addresses of a pool.", "pool")
	descPoolInUse   = desc("lbd_allocator_addresses_in_use_total", "Addresses of a pool that Services have.", "pool")
	descPoolResting = desc("lbd_allocator_addresses_quarantined", "Addresses of a pool that rest.", "pool")
	descPool4Size   = desc("lbd_allocator_ipv4_addresses_total", "IPv4 addresses of a pool.", "pool")
	descPool4InUse  = desc("lbd_allocator_ipv4_addresses_in_use_total", "IPv4 addresses of a pool that Services have.", "pool")
	descPool6Size   = desc("lbd_allocator_ipv6_addresses_total", "IPv6 addresses of a pool.", "pool")
	descPool6InUse  = desc("lbd_allocator_ipv6_addresses_in_use_total", "IPv6 addresses of a pool that Services have.", "pool")
)

// Describe implements prometheus.Collector; the set is not fixed.
func (m *controllerMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. A process that does not lead knows nothing
// of pools and Services.
func (m *controllerMetrics) Collect(ch chan<- prometheus.Metric) {
	c := metrics(ch)
	c.count(descLogLost, m.log.Lost())
	s := m.controller.Stats()
	c.truth(descLeader, s.Leader)
	if s.Leader {
		c.gauge(descServices, float64(s.Services))
		c.gauge(descWaiting, float64(s.Waiting))
	}
	machines := m.controller.MachineWrites()
	for _, result := range slices.Sorted(maps.Keys(machines)) {
		c.count(descMachines, machines[result], result)
	}
	for _, result := range slices.Sorted(maps.Keys(s.Writes)) {
		c.count(descWrites, s.Writes[result], result)
	}
	c.count(descEvents, s.EventsSent, "sent")
	c.count(descEvents, s.EventsDropped, "dropped")
	c.count(descAssigned, s.Assigned)
	c.count(descReleased, s.Released)
	c.count(descRepairs, s.Repaired)
	for _, rule := range slices.Sorted(maps.Keys(s.Failures)) {
		c.count(descFailures, s.Failures[rule], rule)
	}
	if s.Leader {
		m.collectTenants(c)
	}
	for _, p := range s.Pools {
		c.gauge(descPoolSize, float64(p.IPv4.Size)+float64(p.IPv6.Size), p.Pool)
		c.gauge(descPoolInUse, float64(p.IPv4.Assigned+p.IPv6.Assigned), p.Pool)
		c.gauge(descPoolResting, float64(p.IPv4.Quarantined+p.IPv6.Quarantined), p.Pool)
		c.gauge(descPool4Size, float64(p.IPv4.Size), p.Pool)
		c.gauge(descPool4InUse, float64(p.IPv4.Assigned), p.Pool)
		c.gauge(descPool6Size, float64(p.IPv6.Size), p.Pool)
		c.gauge(descPool6InUse, float64(p.IPv6.Assigned), p.Pool)
	}
	collectRequests(m.client.Requests(), c)
}

// agentMetrics reads the counters of an agent at scrape.
type agentMetrics struct {
	agent       *agent.Agent
	tenant, hub *k8s.Client
	kubeconfig  string // of the hub
	log         *logqueue.Queue
}

var (
	descAgentLeader     = desc("lbd_agent_leader", "Whether this process writes.")
	descAgentConnected  = desc("lbd_agent_connected", "Whether the objects of the cluster are being watched.", "cluster")
	descAgentServices   = desc("lbd_agent_services", "Services that are propagated: served, refused by the hub or the agent, or waiting for an address.", "state")
	descAgentIngresses  = desc("lbd_agent_ingresses", "Ingresses that are propagated: served, refused by the hub or the agent, or waiting for an address.", "state")
	descAgentHTTPRoutes = desc("lbd_agent_httproutes", "HTTPRoutes that are propagated: served, refused by the hub or the agent, or waiting for an address.", "state")
	descAgentGRPCRoutes = desc("lbd_agent_grpcroutes", "GRPCRoutes that are propagated: served, refused by the hub or the agent, or waiting for an address.", "state")
	descAgentNodes      = desc("lbd_agent_nodes", "Nodes that the hub is told of, by state.", "state")
	descAgentWrites     = desc("lbd_agent_writes_total", "Writes of objects by cluster, kind and result.", "cluster", "kind", "result")
	descAgentEvents     = desc("lbd_agent_events_total", "Events, sent or dropped.", "result")
	descAgentTokens     = desc("lbd_agent_token_renewals_total", "Renewals of the token for the hub, by result.", "result")
)

// Describe implements prometheus.Collector; the set is not fixed.
func (m *agentMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. A process that does not lead knows nothing of Services and
// Nodes.
func (m *agentMetrics) Collect(ch chan<- prometheus.Metric) {
	c := metrics(ch)
	c.count(descLogLost, m.log.Lost())
	s := m.agent.Stats()
	c.truth(descAgentLeader, s.Leader)
	c.truth(descAgentConnected, s.HubConnected, agent.SideHub)
	c.truth(descAgentConnected, s.TenantConnected, agent.SideTenant)
	if s.Leader {
		for d, n := range map[*prometheus.Desc]propagate.Counts{descAgentServices: s.Counts, descAgentIngresses: s.Routes,
			descAgentHTTPRoutes: s.OfGateways[v1alpha1.OriginHTTPRoute], descAgentGRPCRoutes: s.OfGateways[v1alpha1.OriginGRPCRoute]} {
			c.gauge(d, float64(n.Served), "served")
			c.gauge(d, float64(n.Refused), "refused")
			c.gauge(d, float64(n.Waiting), "waiting")
		}
		for _, state := range []v1alpha1.TenantNodeState{v1alpha1.TenantNodeServing, v1alpha1.TenantNodeDraining, v1alpha1.TenantNodeOut} {
			c.gauge(descAgentNodes, float64(s.Nodes[state]), string(state))
		}
	}
	for w, n := range s.Writes {
		c.count(descAgentWrites, n, w.Side, w.What, w.Result)
	}
	c.count(descAgentEvents, s.EventsSent, "sent")
	c.count(descAgentEvents, s.EventsDropped, "dropped")
	for result, n := range s.TokenRenewals {
		c.count(descAgentTokens, n, result)
	}
	if end, ends := k8s.CredentialsEnd(m.kubeconfig); ends {
		c.gauge(descExpiry, float64(end.Unix()), m.kubeconfig)
	}
	all := m.tenant.Requests()
	for r, n := range m.hub.Requests() {
		all[r] += n
	}
	collectRequests(all, c)
}

var descRequests = desc("lbd_kubernetes_requests_total", "Requests to the API server, by method and HTTP status.", "method", "code")

// collectRequests tells what a client has sent.
func collectRequests(all map[k8s.Request]uint64, c metrics) {
	for r, n := range all {
		c.count(descRequests, n, r.Method, r.Code)
	}
}

// secureMetrics is the HTTPS listener of /metrics, nil if none is asked for. It has a client
// of its own, so that strangers who ask use up nothing that others need.
func secureMetrics(spec v1alpha1.MetricsSpec, kubeconfig string, log *slog.Logger) *control.SecureMetrics {
	if spec.Off() {
		return nil
	}
	connect := func() (*k8s.Client, error) {
		return k8s.New(k8s.Options{
			Logger: log, Kubeconfig: kubeconfig, UserAgent: "lbd-metrics/" + programVersion(), QPS: review.QPS, Burst: review.Burst,
		})
	}
	return &control.SecureMetrics{
		Address: spec.Address, CertFile: spec.CertFile, KeyFile: spec.KeyFile,
		Authorize: review.New(connect, control.MetricsPath).Allow,
	}
}

// The metrics of tenants: a few for each Tenant, however many Services it has.
var (
	descTenantServices     = desc("lbd_tenant_services", "TenantServices of a Tenant that are accepted.", "tenant")
	descTenantServiceLimit = desc("lbd_tenant_services_limit", "TenantServices that a Tenant may have.", "tenant")
	descTenantAddresses    = desc("lbd_tenant_addresses", "Addresses that the Services of a Tenant have.", "tenant")
	descTenantAddressLimit = desc("lbd_tenant_addresses_limit", "Addresses that a Tenant may have.", "tenant")
	descTenantNodes        = desc("lbd_tenant_nodes", "Nodes that the agents of a Tenant name.", "tenant")
	descTenantRoutes       = desc("lbd_tenant_routes", "TenantRoutes of a Tenant that are accepted.", "tenant")
	descTenantRouteLimit   = desc("lbd_tenant_routes_limit", "TenantRoutes that a Tenant may have.", "tenant")
	descTenantRoutesStill  = desc("lbd_tenant_routes_still", "Whether nothing of routes changes but the nodes behind them, since what the hub has for them cannot be read.")
	descTenantProblems     = desc("lbd_tenant_problems", "Objects of a Tenant, itself included, that are not in use as they are written, or lack an address.", "tenant")
	descTenantAgentAway    = desc("lbd_tenant_agent_away", "Whether the agent of a cluster of a Tenant gives no sign of life any more.", "tenant", "cluster")
)

// collectTenants reads what the tenants of a hub have.
func (m *controllerMetrics) collectTenants(c metrics) {
	all := m.controller.TenantUse()
	if len(all) > 0 {
		c.truth(descTenantRoutesStill, m.controller.RoutesStill())
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		u := all[name]
		c.gauge(descTenantServices, float64(u.Services), name)
		c.gauge(descTenantServiceLimit, float64(u.Limits.Services), name)
		c.gauge(descTenantAddresses, float64(u.Addresses), name)
		c.gauge(descTenantAddressLimit, float64(u.Limits.Addresses), name)
		c.gauge(descTenantNodes, float64(u.Nodes), name)
		c.gauge(descTenantRoutes, float64(u.Routes), name)
		c.gauge(descTenantRouteLimit, float64(u.Limits.Routes), name)
		c.gauge(descTenantProblems, float64(u.Problems), name)
		for _, cluster := range slices.Sorted(maps.Keys(u.Away)) {
			c.truth(descTenantAgentAway, u.Away[cluster], name, cluster)
		}
	}
}
