package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// serve stands in for an API server: https with /livez, /readyz and /watch, and a plain
// TCP port that says the node's name and then echoes lines; another reads and throws away. For more see servePushes. Datagrams to the port of
// duty are read and thrown away.
func serve(ctx context.Context, args []string, _ *events) error {
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	name := fs.String("name", "", "name of the node, the answer to everything")
	cert := fs.String("cert", "", "certificate file")
	key := fs.String("key", "", "key file")
	https := fs.String("https", "[::]:6443", "address of the https port")
	echo := fs.String("echo", "[::]:7000", "address of the echo port")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if err := servePushes(*name); err != nil {
		return err
	}
	l, err := net.Listen("tcp", *echo)
	if err != nil {
		return fmt.Errorf("echo: %w", err)
	}
	void, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", sinkPort))
	if err != nil {
		return errors.Join(fmt.Errorf("sink: %w", err), l.Close())
	}
	sink, err := net.ListenPacket("udp", fmt.Sprintf("[::]:%d", dutyPort))
	if err != nil {
		return errors.Join(fmt.Errorf("duty: %w", err), l.Close(), void.Close())
	}
	srv := &http.Server{
		Addr: *https, Handler: nameHandler(*name),
		ReadHeaderTimeout: 2 * time.Second, IdleTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12},
		ErrorLog:  log.New(io.Discard, "", 0), // a TCP check looks like a failed handshake
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		<-ctx.Done()
		_ = srv.Close()
		_ = l.Close()
		_ = void.Close()
		_ = sink.Close()
	})
	wg.Go(func() { echoAll(l, *name) })
	wg.Go(func() { sinkAll(void) })
	wg.Go(func() { discardAll(sink) })
	if err := srv.ListenAndServeTLS(*cert, *key); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("https: %w", err)
	}
	return nil
}

// discardAll reads until the socket is closed.
func discardAll(c net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		if _, _, err := c.ReadFrom(buf); errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

func nameHandler(name string) http.Handler {
	mux := http.NewServeMux()
	ok := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Served-By", name)
		fmt.Fprintln(w, "ok "+name)
	}
	mux.HandleFunc("/livez", ok)
	mux.HandleFunc("/readyz", ok)
	mux.HandleFunc("/watch", streamHandler(name))
	return mux
}

// echoAll serves the echo port until the listener is closed. The connections end
// with the process.
func echoAll(l net.Listener, name string) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors; they come back
			continue
		}
		go echoOne(c, name)
	}
}

func echoOne(c net.Conn, name string) {
	defer c.Close()
	if _, err := fmt.Fprintln(c, name); err != nil {
		return
	}
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		if _, err := c.Write(line); err != nil {
			return
		}
	}
}
