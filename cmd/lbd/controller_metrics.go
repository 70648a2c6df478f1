package main

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"lbd.dev/lbd/internal/k8s"
	"lbd.dev/lbd/internal/k8s/controller"
)

// controllerMetrics reads the counters of the controller at scrape. Those of pools
// have the names and meanings of MetalLB, with lbd's prefix.
type controllerMetrics struct {
	controller *controller.Controller
	client     *k8s.Client
	log        *logQueue
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
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, n float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, n, labels...)
	}
	count(descLogLost, m.log.lost())
	s := m.controller.Stats()
	leader := 0.0
	if s.Leader {
		leader = 1
		gauge(descServices, float64(s.Services))
		gauge(descWaiting, float64(s.Waiting))
	}
	gauge(descLeader, leader)
	machines := m.controller.MachineWrites()
	for _, result := range slices.Sorted(maps.Keys(machines)) {
		count(descMachines, machines[result], result)
	}
	for _, result := range slices.Sorted(maps.Keys(s.Writes)) {
		count(descWrites, s.Writes[result], result)
	}
	count(descEvents, s.EventsSent, "sent")
	count(descEvents, s.EventsDropped, "dropped")
	count(descAssigned, s.Assigned)
	count(descReleased, s.Released)
	count(descRepairs, s.Repaired)
	for _, rule := range slices.Sorted(maps.Keys(s.Failures)) {
		count(descFailures, s.Failures[rule], rule)
	}
	for _, p := range s.Pools {
		gauge(descPoolSize, float64(p.IPv4.Size)+float64(p.IPv6.Size), p.Pool)
		gauge(descPoolInUse, float64(p.IPv4.Assigned+p.IPv6.Assigned), p.Pool)
		gauge(descPoolResting, float64(p.IPv4.Quarantined+p.IPv6.Quarantined), p.Pool)
		gauge(descPool4Size, float64(p.IPv4.Size), p.Pool)
		gauge(descPool4InUse, float64(p.IPv4.Assigned), p.Pool)
		gauge(descPool6Size, float64(p.IPv6.Size), p.Pool)
		gauge(descPool6InUse, float64(p.IPv6.Assigned), p.Pool)
	}
	collectRequests(m.client.Requests(), count)
}

var descRequests = desc("lbd_kubernetes_requests_total", "Requests to the API server, by method and HTTP status.", "method", "code")

// collectRequests tells what a client has sent.
func collectRequests(all map[k8s.Request]uint64, count func(d *prometheus.Desc, n uint64, labels ...string)) {
	for r, n := range all {
		count(descRequests, n, r.Method, r.Code)
	}
}
