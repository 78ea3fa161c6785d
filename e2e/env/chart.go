// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/spokelet/spokelet/hack/clusters"
)

// chartPort is where charts are served for a cluster, on this machine.
const chartPort = "8879"

// ChartsURL is where [ServeCharts] serves for a cluster.
func ChartsURL(c *clusters.Cluster) string {
	return "http://" + net.JoinHostPort(c.Gateway, chartPort) + "/charts/"
}

// ServeCharts serves files, below the path of [ChartsURL], to one cluster, until stop is
// called.
func ServeCharts(ctx context.Context, c *clusters.Cluster, files map[string][]byte) (stop func(), err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(c.Gateway, chartPort))
	if err != nil {
		return nil, fmt.Errorf("server of charts: %w", err)
	}
	mux := http.NewServeMux()
	for name, content := range files {
		mux.HandleFunc("GET /charts/"+name, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) })
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // until it is closed
	}()
	return func() {
		_ = server.Close()
		<-served
	}, nil
}

// Archive packs the files of a chart. Their names begin with that of the chart.
func Archive(files map[string]string) ([]byte, error) {
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		if err := archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content))}); err != nil {
			return nil, fmt.Errorf("archive: %s: %w", name, err)
		}
		if _, err := archive.Write([]byte(content)); err != nil {
			return nil, fmt.Errorf("archive: %s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	if err := zipped.Close(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return packed.Bytes(), nil
}

// ChartFile is the Chart.yaml of a chart.
func ChartFile(name, version string) string {
	return fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", name, version)
}
