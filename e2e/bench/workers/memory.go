// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workers

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/e2e/bench/figure"
	"github.com/spokelet/spokelet/e2e/env"
)

// lookEvery is how often processes are looked at: shorter than any of them lives. The kernel
// keeps the most that each has had.
const lookEvery = 10 * time.Millisecond

// memory is the most that a step of a build has in memory at once: the program, and workerd
// where that runs beside it. The processes are those of this machine, which the nodes' are;
// where they are not, there is no figure.
func (s *suite) memory(ctx context.Context) ([]figure.Figure, error) {
	url, err := s.put(ctx, rounds+1)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pods := s.kube.CoreV1().Pods(env.WorkersNamespace)
	before, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	w, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: before.ResourceVersion})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	if _, err := s.use(ctx, url); err != nil {
		return nil, err
	}
	steps := peaks{}
	var build types.UID
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case e, open := <-w.ResultChan():
			pod, ok := e.Object.(*corev1.Pod)
			switch {
			case !open:
				return nil, fmt.Errorf("memory of a build: the watch of pods ended: %w", ctx.Err())
			case !ok || pod.Labels["workers.spokelet.io/builder"] == "":
			case pod.Status.Phase == corev1.PodSucceeded:
				return steps.figures(), nil
			case pod.Status.Phase == corev1.PodFailed:
				return nil, fmt.Errorf("memory of a build: pod %s failed", pod.Name)
			default:
				build = pod.UID
			}
		case <-ticker.C:
			if build != "" {
				steps.look(build)
			}
		}
	}
}

// peaks are, for each container by its cgroup, the most that each process has had.
type peaks map[string]map[string]int64

// look looks at all processes of a pod. One that ends meanwhile was looked at before.
func (p peaks) look(pod types.UID) {
	proc := os.DirFS("/proc")
	processes, _ := fs.Glob(proc, "[0-9]*")
	for _, process := range processes {
		group, err := fs.ReadFile(proc, process+"/cgroup")
		if err != nil || !ofPod(group, pod) {
			continue
		}
		status, err := fs.ReadFile(proc, process+"/status")
		if err != nil {
			continue
		}
		container := string(group)
		if p[container] == nil {
			p[container] = map[string]int64{}
		}
		p[container][process] = max(p[container][process], highWater(status))
	}
}

// ofPod tells whether a cgroup is of a pod, whose UID it has with dashes or with underscores.
func ofPod(group []byte, pod types.UID) bool {
	return bytes.Contains(group, []byte(pod)) || bytes.Contains(group, []byte(strings.ReplaceAll(string(pod), "-", "_")))
}

// highWater is the most of a process that was resident, in bytes, as of proc_pid_status(5).
func highWater(status []byte) int64 {
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}

func (p peaks) figures() []figure.Figure {
	var most, mebi float64
	for _, container := range p {
		mebi = 0
		for _, bytes := range container {
			mebi += float64(bytes) / (1 << 20)
		}
		most = max(most, mebi)
	}
	if most == 0 {
		return nil
	}
	return []figure.Figure{{
		Name: "workers.build.mib", Value: most, Unit: "MiB",
		Detail: fmt.Sprintf("resident, the most of %d containers; that of all processes of a container added up", len(p)),
	}}
}
