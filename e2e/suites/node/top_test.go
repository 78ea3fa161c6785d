// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/spokelet/spokelet/e2e/env"
	"github.com/spokelet/spokelet/e2e/testbed"
)

var podMetricsResource = schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "pods"}

// figured is a pod of which it is known what it takes: one container has a tenth of
// a CPU and uses it up, the other holds 32 MiB.
const figured = "figured"

func figuredPod() string {
	return testbed.Pod(figured, "",
		testbed.Container("busy", "while :; do :; done", "resources: {limits: {cpu: 100m}}, "),
		testbed.Container("full", "dd if=/dev/zero of=/dev/shm/full bs=1M count=32; exec sleep 1d", ""))
}

// topAgrees has metrics-server read the kubelets of the hub, the virtual ones among
// them, and another one those of the spoke; kubectl asks both.
func (s *tests) topAgrees(t *testing.T) {
	start := time.Now()
	s.Hub.Apply(t, figuredPod())
	s.installMetricsServers(t)
	for _, on := range []*testbed.Site{s.Hub, s.Spoke()} {
		on.Kubectl(t, "wait", "--for=condition=Available", "apiservice/v1beta1.metrics.k8s.io", "--timeout=300s")
	}
	t.Logf("metrics-server serves after %s", time.Since(start).Round(time.Second))
	for _, on := range []*testbed.Site{s.Hub, s.Spoke()} {
		for _, name := range []string{figured, testbed.LongLived} {
			untilFigures(t, on, name)
		}
	}
	t.Logf("figures of a new pod after %s", time.Since(start).Round(time.Second))
	c := s.webSocket()
	testbed.Parallel(t, map[string]func(*testing.T){
		"pods":  func(t *testing.T) { podsTop(t, c) },
		"nodes": func(t *testing.T) { s.nodesTop(t, c) },
	})
	s.Hub.InPods(t, "delete", "pod", figured, "--timeout=300s")
}

// installMetricsServers installs one on the hub and one in the first spoke, and
// removes them when the test ends.
func (s *tests) installMetricsServers(t *testing.T) {
	t.Helper()
	server := s.metrics
	t.Cleanup(func() {
		// The test's own context has ended by now.
		ctx := context.WithoutCancel(t.Context())
		if err := together(
			func() error { return server.Uninstall(ctx, s.Hub.Cluster) },
			func() error { return server.Uninstall(ctx, s.Spoke().Cluster) },
		); err != nil {
			t.Error(err)
		}
	})
	if err := together(
		func() error { return server.InstallOnHub(t.Context()) },
		func() error { return server.Install(t.Context(), s.Spoke().Cluster) },
	); err != nil {
		t.Fatal(err)
	}
}

// together runs functions at the same time, and returns their errors.
func together(run ...func() error) error {
	errs := make([]error, len(run))
	var group sync.WaitGroup
	for i, f := range run {
		group.Go(func() { errs[i] = f() })
	}
	group.Wait()
	return errors.Join(errs...)
}

// untilFigures waits until metrics-server has read a pod's containers twice.
func untilFigures(t *testing.T, on *testbed.Site, name string) {
	t.Helper()
	untilRead(t, on.Name+": figures of pod "+name, func(ctx context.Context) error {
		_, err := on.Dyn.Resource(podMetricsResource).Namespace(testbed.PodsNamespace).Get(ctx, name, metav1.GetOptions{})
		return err
	})
}

// untilRead waits for figures that are as they should be.
func untilRead(t *testing.T, what string, read func(context.Context) error) {
	t.Helper()
	if err := readAgain(t.Context(), read); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// readAgain reads until there is no error: the figures of one window of
// metrics-server, on a machine that does much else, may not be as they should.
func readAgain(ctx context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, testbed.Settle)
	defer cancel()
	for {
		err := read(ctx)
		if err == nil {
			return nil
		}
		if pause(ctx); ctx.Err() != nil {
			return fmt.Errorf("not within %s: %w", testbed.Settle, err)
		}
	}
}

// pause keeps a question that has an answer every few seconds from being asked all
// the time.
func pause(ctx context.Context) {
	timer := time.NewTimer(500 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// row is what top says of one pod, container or node.
type row struct {
	name   string
	millis int64 // of a CPU
	mib    int64
}

// top runs "kubectl top" and reads its table: so many columns of names, then the
// CPU and the memory, each perhaps with its share.
func top(ctx context.Context, ctl env.Command, names int, args ...string) ([]row, error) {
	got := testbed.Ask(ctx, ctl, "", append([]string{"top"}, args...)...)
	if got.Code != 0 || got.Err != "" {
		return nil, fmt.Errorf("top %v: %d, %s", args, got.Code, got.Err)
	}
	var rows []row
	for line := range strings.Lines(got.Out) {
		fields := strings.Fields(line)
		if strings.HasPrefix(line, "NAME") || strings.HasPrefix(line, "POD") || strings.Trim(line, "_ \n") == "" {
			continue
		}
		// The name of a sum is empty.
		label := strings.Join(fields[:min(names, len(fields))], " ")
		figures := slices.DeleteFunc(fields[min(names, len(fields)):], func(f string) bool { return strings.HasSuffix(f, "%") })
		if len(figures) != 2 {
			return nil, fmt.Errorf("top %v: no two figures in %q", args, line)
		}
		cpu, cpuErr := resource.ParseQuantity(figures[0])
		memory, memoryErr := resource.ParseQuantity(figures[1])
		if err := errors.Join(cpuErr, memoryErr); err != nil {
			return nil, fmt.Errorf("top %v: %q: %w", args, line, err)
		}
		rows = append(rows, row{name: label, millis: cpu.MilliValue(), mib: memory.Value() >> 20})
	}
	return rows, nil
}

// namesOf are the rows' names, in their order.
func namesOf(rows []row) string {
	var names []string
	for _, r := range rows {
		names = append(names, r.name)
	}
	return strings.Join(names, "\n")
}

// ours selects pods that stay as they are while others come and go.
const ours = "app in (" + figured + ", " + testbed.LongLived + ")"

func podsTop(t *testing.T, c testbed.Client) {
	c.Both(t, func(ctl env.Command, way string) (string, error) {
		var rows []row
		err := readAgain(t.Context(), func(ctx context.Context) (err error) {
			rows, err = top(ctx, ctl, 2, "pod", "--containers", "-l", ours)
			return errors.Join(err, asKnown(rows))
		})
		t.Logf("%s, %s: %+v", c.Name, way, rows)
		return namesOf(rows), err
	})
	order := func(ctx context.Context, ctl env.Command) (string, error) {
		byMemory, err := top(ctx, ctl, 1, "pod", "-l", ours, "--sort-by=memory")
		if err != nil {
			return "", err
		}
		byCPU, err := top(ctx, ctl, 1, "pod", "-l", ours, "--sort-by=cpu", "--no-headers")
		return namesOf(byMemory) + "\n" + namesOf(byCPU), err
	}
	// The two readers do not look at the same moment.
	untilRead(t, c.Name+": the same order on both ways", func(ctx context.Context) error {
		direct, err := order(ctx, c.Spoke)
		if err != nil {
			return err
		}
		virtual, err := order(ctx, c.Hub)
		if diff := cmp.Diff(direct, virtual); err == nil && diff != "" {
			err = fmt.Errorf("(-spoke +hub):\n%s", diff)
		}
		return err
	})
	c.Verbs(t, map[string]testbed.Verb{
		"no such pod":   {Args: []string{"top", "pod", "nowhere"}, Code: 1, Err: "not found"},
		"no such label": {Args: []string{"top", "pod", "-l", "app=nowhere"}, Err: "No resources found"},
	})
}

// asKnown compares the figures of the containers with what they take.
func asKnown(rows []row) error {
	found := 0
	for _, r := range rows {
		switch {
		case r.name == figured+" busy" && (r.millis < 20 || r.millis > 150):
			return fmt.Errorf("a tenth of a CPU is shown as %dm", r.millis)
		case r.name == figured+" full" && (r.mib < 32 || r.mib > 40):
			return fmt.Errorf("32 MiB are shown as %d", r.mib)
		case strings.HasPrefix(r.name, figured+" "):
			found++
		}
	}
	if found != 2 {
		return fmt.Errorf("%d containers of the pod in %+v", found, rows)
	}
	return nil
}

// nodesTop compares a virtual node with the one node of its spoke.
func (s *tests) nodesTop(t *testing.T, c testbed.Client) {
	untilRead(t, c.Name+": figures of nodes", func(ctx context.Context) error {
		virtual, err := nodeTop(ctx, c.Hub, s.Spoke().Name)
		if err != nil {
			return err
		}
		direct, err := nodeTop(ctx, c.Spoke, s.Spoke().Node)
		// The two readers do not look at the same moment.
		if err == nil && (!near(virtual.millis, direct.millis, 10) || !near(virtual.mib, direct.mib, 2)) {
			err = fmt.Errorf("the node takes %+v, that of the spoke %+v", virtual, direct)
		}
		return err
	})
	untilRead(t, c.Name+": figures of every node", func(ctx context.Context) error {
		all, err := top(ctx, c.Hub, 1, "node")
		for _, name := range []string{s.Hub.Node, s.Spokes[0].Name, s.Spokes[1].Name} {
			if err == nil && !slices.ContainsFunc(all, func(r row) bool { return r.name == name && r.millis > 0 && r.mib > 0 }) {
				err = fmt.Errorf("no node %s in %+v", name, all)
			}
		}
		return err
	})
	testbed.Refused(t, "no such node", c.Hub, "", []string{"top", "node", "nowhere"}, "not found")
}

// nodeTop is what top says of one node.
func nodeTop(ctx context.Context, ctl env.Command, name string) (row, error) {
	rows, err := top(ctx, ctl, 1, "node", name)
	if err == nil && (len(rows) != 1 || rows[0].name != name) {
		err = fmt.Errorf("top node %s: %+v", name, rows)
	}
	if err != nil {
		return row{}, err
	}
	return rows[0], nil
}

// near reports whether neither figure is more than so many times the other.
func near(a, b, times int64) bool {
	return a > 0 && b > 0 && a <= times*b && b <= times*a
}
