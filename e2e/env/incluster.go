// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters/image"
)

const (
	// serversNamespace of the hub is where its servers are.
	serversNamespace = "storage"

	storeNodePort    = 30900
	registryNodePort = 30500
)

// ErrNoStore is returned where the hub has no object store in a pod.
var ErrNoStore = errors.New("the hub has no object store")

// podServer is a server in a pod of the hub. It is reached on a port of the hub's node, from
// all clusters and from this machine, and is there for as long as the clusters are: longer
// than the process that has made it. What it keeps goes with its pod.
type podServer struct {
	name     string
	command  []string // it listens on port, and keeps its data in /data
	files    []image.File
	port     int
	nodePort int
}

// podServerFormat takes its environment from a Secret of its name, if there is one.
const podServerFormat = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: %[1]s
          image: %[3]s
          imagePullPolicy: IfNotPresent
          env: [{name: %[6]s, value: %[7]s}]
          envFrom: [{secretRef: {name: %[1]s, optional: true}}]
          ports: [{containerPort: %[4]d}]
          readinessProbe: {tcpSocket: {port: %[4]d}, periodSeconds: 1}
          securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
          volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, emptyDir: {}}]
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  type: NodePort
  selector: {app: %[1]s}
  ports: [{port: %[4]d, nodePort: %[5]d}]
`

// StoreInHub starts an object store in a pod of the hub.
func (e *Env) StoreInHub(ctx context.Context) (*Store, error) {
	program, err := e.Set.Program(ctx, "versitygw")
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if err := e.restricted(ctx, e.Set.Hub(), serversNamespace); err != nil {
		return nil, err
	}
	s := newStore(rand.Text(), rand.Text())
	if err := e.secret(ctx, serversNamespace, workersStore, map[string]string{storeAccessKey: s.AccessKey, storeSecretKey: s.SecretKey}); err != nil {
		return nil, err
	}
	s.Server, err = e.serveInHub(ctx, podServer{
		name: workersStore, port: 9000, nodePort: storeNodePort,
		command: []string{"/versitygw", ":9000", "/data"},
		files:   []image.File{{Path: "/versitygw", Source: program, Mode: 0o755}},
	})
	if err != nil {
		return nil, err
	}
	return s, s.open(ctx)
}

// OpenStoreInHub finds the object store that StoreInHub started, in this process or another.
func (e *Env) OpenStoreInHub(ctx context.Context) (*Store, error) {
	out, err := e.Kubectl(e.Set.Hub()).Run(ctx, "get", "secret", workersStore, "--namespace", serversNamespace, "--ignore-not-found", "--output", "json")
	if err != nil {
		return nil, err
	}
	if out == "" {
		return nil, ErrNoStore
	}
	var found struct {
		Data map[string][]byte `json:"data"`
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		return nil, fmt.Errorf("store: its keys: %w", err)
	}
	s := newStore(string(found.Data[storeAccessKey]), string(found.Data[storeSecretKey]))
	s.Server = &Server{Address: e.nodeAddress(storeNodePort)}
	return s, s.open(ctx)
}

// RegistryInHub starts a registry in a pod of the hub, and has the nodes of all clusters read
// from it.
func (e *Env) RegistryInHub(ctx context.Context) (*ImageRegistry, error) {
	program, err := e.Set.Program(ctx, "registry")
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	config := filepath.Join(e.Bin, "registry.yaml")
	if err := os.WriteFile(config, registryConfig("/data", ":5000"), 0o600); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	if err := e.restricted(ctx, e.Set.Hub(), serversNamespace); err != nil {
		return nil, err
	}
	server, err := e.serveInHub(ctx, podServer{
		name: "registry", port: 5000, nodePort: registryNodePort,
		command: []string{"/registry", "serve", "/registry.yaml"},
		files: []image.File{
			{Path: "/registry", Source: program, Mode: 0o755},
			{Path: "/registry.yaml", Source: config, Mode: 0o644},
		},
	})
	if err != nil {
		return nil, err
	}
	return &ImageRegistry{server}, usePlainRegistry(ctx, e.Set, server.Address)
}

// serveInHub starts a server in a pod of the hub, and returns when it is reached from here.
func (e *Env) serveInHub(ctx context.Context, s podServer) (*Server, error) {
	img, err := e.Build.write(s.name, s.command, s.files)
	if err != nil {
		return nil, err
	}
	hub := e.Set.Hub()
	if err := hub.LoadImage(ctx, img.Archive); err != nil {
		return nil, fmt.Errorf("%s in the hub: %w", s.name, err)
	}
	variable, value, _ := strings.Cut(noTraces, "=")
	manifest := fmt.Sprintf(podServerFormat, s.name, serversNamespace, img.Ref, s.port, s.nodePort, variable, value)
	kubectl := e.Kubectl(hub)
	if _, err := kubectl.RunInput(ctx, strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		return nil, err
	}
	if _, err := kubectl.Run(ctx, "rollout", "status", "deployment/"+s.name, "--namespace", serversNamespace, "--timeout", helmTimeout); err != nil {
		return nil, err
	}
	server := &Server{Address: e.nodeAddress(s.nodePort)}
	// The node forwards to the pod a moment after that is ready.
	if err := accepts(ctx, server.Address, nil); err != nil {
		return nil, fmt.Errorf("%s in the hub: %w", s.name, err)
	}
	return server, nil
}

// nodeAddress is a port of the hub's node, as all reach it.
func (e *Env) nodeAddress(port int) string {
	return net.JoinHostPort(e.Set.Hub().Address, strconv.Itoa(port))
}
