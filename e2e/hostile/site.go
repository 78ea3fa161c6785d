// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/fleet"
	"github.com/spokelet/spokelet/e2e/hostile/spoke"
)

const (
	// cluster is the name of the hostile cluster.
	cluster = "hostile"
	// fleetSize is how many honest clusters there are.
	fleetSize = 50
	// group may use views and clusters/proxy of all clusters.
	group = "fleet-users"
	// maxWindow bounds the time of one Watch.
	maxWindow = 60 * time.Second
)

// Site is a hub with honest clusters and a hostile one.
type Site struct {
	env    *env.Env
	rest   *rest.Config
	kube   kubernetes.Interface
	dyn    dynamic.Interface
	fleet  *env.Child
	names  []string // of the honest clusters
	spoke  *spoke.Process
	hub    string // name of its pod
	work   target
	honest *client
	// attacker is a user with the rights of an honest one, admin the administrator.
	attacker, admin *client
}

// target is a work that the hostile cluster may report on.
type target struct{ name, key, uid string }

// Prepare joins the clusters to a hub that runs.
func Prepare(ctx context.Context, e *env.Env) (*Site, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", e.Set.Hub().Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	cfg.QPS = -1
	s := &Site{env: e, rest: cfg, names: fleet.Names("honest", fleetSize)}
	for user, to := range map[string]**client{"honest": &s.honest, "mallory": &s.attacker, "": &s.admin} {
		if *to, err = newClient(cfg, user); err != nil {
			return nil, err
		}
	}
	// The administrator's connections are ours, and end with the site.
	if s.kube, err = kubernetes.NewForConfigAndClient(cfg, s.admin.http); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	if s.dyn, err = dynamic.NewForConfigAndClient(cfg, s.admin.http); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	for _, step := range []func(context.Context) error{s.grant, s.join, s.startNeighbours, s.makeTarget} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Close ends the clusters; what they left on the hub stays.
func (s *Site) Close() error {
	for _, c := range []*client{s.honest, s.attacker, s.admin} {
		c.close()
	}
	var errs []error
	if s.spoke != nil {
		errs = append(errs, s.spoke.Close())
	}
	if s.fleet != nil {
		errs = append(errs, s.fleet.Close())
	}
	return errors.Join(errs...)
}

// grant gives users and the neighbour's account the rights of an honest user.
func (s *Site) grant(ctx context.Context) error {
	ctl := s.env.Kubectl(s.env.Set.Hub())
	for _, args := range [][]string{
		{"create", "namespace", neighbourNamespace},
		{"create", "clusterrole", group, "--verb=get,list,create", "--resource=viewworks.live.spokelet.io,clusters.live.spokelet.io,clusters.live.spokelet.io/proxy"},
		{"create", "clusterrolebinding", group, "--clusterrole=" + group, "--group=" + group, "--serviceaccount=" + neighbourNamespace + ":default"},
	} {
		if _, err := ctl.Run(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (s *Site) join(ctx context.Context) error {
	var err error
	if s.fleet, err = fleet.Start(ctx, s.env, s.names); err != nil {
		return err
	}
	if err := s.joinHostile(ctx); err != nil {
		return err
	}
	pod, err := s.hubPod(ctx)
	if err != nil {
		return err
	}
	s.hub = pod.Name
	return s.nodes(ctx)
}

// joinHostile joins the hostile cluster. It may be split by its label, as a cluster is
// only where the hub's administrator has agreed.
func (s *Site) joinHostile(ctx context.Context) error {
	binary, err := s.env.Build.Tool(ctx, "hostile")
	if err != nil {
		return err
	}
	invitation, err := fleet.Invite(ctx, s.env, cluster, "--split-label", spoke.SplitLabel)
	if err != nil {
		return err
	}
	s.spoke, err = spoke.Start(ctx, binary, invitation)
	return err
}

// nodes waits until all nodes of the hostile cluster can be asked.
func (s *Site) nodes(ctx context.Context) error {
	count := 0
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := s.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "spokelet.io/cluster=" + cluster})
		if err != nil {
			return false, err
		}
		count = 0
		for _, node := range list.Items {
			if node.Status.DaemonEndpoints.KubeletEndpoint.Port > 0 {
				count++
			}
		}
		return count == spoke.Groups+1, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d nodes of the hostile cluster: %w", count, spoke.Groups+1, err)
	}
	return nil
}

func manifestWorks() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "work.open-cluster-management.io", Version: "v1", Resource: "manifestworks"}
}

// makeTarget makes a work of half a megabyte for the hostile cluster.
func (s *Site) makeTarget(ctx context.Context) error {
	works := s.dyn.Resource(manifestWorks()).Namespace(cluster)
	made, err := works.Create(ctx, newWork("target-", filler(workBytes)), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("work: %w", err)
	}
	key := wire.WorkKey{Dialect: wire.DialectManifestWork, Namespace: cluster, Name: made.GetName()}
	s.work = target{name: made.GetName(), key: key.String(), uid: string(made.GetUID())}
	return nil
}
