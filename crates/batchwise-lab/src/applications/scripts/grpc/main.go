// A gRPC server whose handler takes a given time, and a client with so many calls at once on one
// connection, which logs each call.
//
//	grpc serve ADDRESS HANDLER-TIME
//	grpc call ADDRESS CALLS SECONDS LOG
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/examples/helloworld/helloworld"
)

type greeter struct {
	pb.UnimplementedGreeterServer
	takes time.Duration
}

func (g *greeter) SayHello(_ context.Context, r *pb.HelloRequest) (*pb.HelloReply, error) {
	if g.takes > 0 {
		time.Sleep(g.takes)
	}
	return &pb.HelloReply{Message: "hello " + r.Name}, nil
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func serve(address, takes string) {
	listener := must(net.Listen("tcp", address))
	server := grpc.NewServer()
	pb.RegisterGreeterServer(server, &greeter{takes: must(time.ParseDuration(takes))})
	log.Fatal(server.Serve(listener))
}

type call struct {
	began time.Time
	took  time.Duration
}

func load(address, calls, seconds, path string) {
	plain := grpc.WithTransportCredentials(insecure.NewCredentials())
	client := pb.NewGreeterClient(must(grpc.NewClient(address, plain)))
	end := time.Now().Add(time.Duration(must(strconv.Atoi(seconds))) * time.Second)
	tasks := must(strconv.Atoi(calls))
	done := make([][]call, tasks)
	var group sync.WaitGroup
	for i := range tasks {
		group.Go(func() {
			for began := time.Now(); began.Before(end); began = time.Now() {
				must(client.SayHello(context.Background(), &pb.HelloRequest{Name: "world"}))
				done[i] = append(done[i], call{began, time.Since(began)})
			}
		})
	}
	group.Wait()
	for i, of := range done {
		file := must(os.Create(fmt.Sprintf("%s.%d", path, i)))
		out := bufio.NewWriter(file)
		for _, c := range of {
			fmt.Fprintf(out, "%d\t200\t%.1f\n", c.began.UnixMicro(), float64(c.took.Nanoseconds())/1e3)
		}
		must(0, out.Flush())
	}
}

func main() {
	switch arguments := os.Args[1:]; arguments[0] {
	case "serve":
		serve(arguments[1], arguments[2])
	case "call":
		load(arguments[1], arguments[2], arguments[3], arguments[4])
	}
}
