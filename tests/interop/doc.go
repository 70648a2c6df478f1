// Package interop puts routers between the nodes and the client of the lab:
// namespaces that run FRR, BIRD 2 or GoBGP, as an operator would configure them
// for lbd. It compares what the routers say of their sessions and paths with
// files, watches the routes in their kernels, and breaks things.
//
// One case of the matrix, with its logs kept:
//
//	make build
//	LBD_BIN=$PWD/bin/lbd LBD_LAB_LOGS=/tmp/logs go test -count=1 -v ./tests/interop -run 'TestMatrix/md5/frr'
//
// A case is a folder of testdata/matrix: lbd.yaml is what the node's
// configuration has besides NodeConfiguration, frr.conf, bird.conf and gobgp.toml
// are the routers', and *.want holds commands and what they must answer, see
// Expectation.
package interop
