/* A program that loses its device, looks for devices anew, and finds it under another name; its files, too. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *names(void)
{
	static char line[256];
	int count = 0;
	struct ibv_device **all = ibv_get_device_list(&count);
	line[0] = 0;
	for (int i = 0; i < count; i++) {
		strcat(line, i ? " " : "");
		strcat(line, ibv_get_device_name(all[i]));
	}
	ibv_free_device_list(all);
	return line;
}

static int has_files(const char *name)
{
	char path[256];
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/state", name);
	return !access(path, R_OK);
}

/* Waits until the devices are these, and says so. */
static void wait_for(const char *devices)
{
	while (strcmp(names(), devices))
		usleep(10000);
	puts(devices);
}

static void open_it(struct ibv_device *device)
{
	struct ibv_context *context = ibv_open_device(device);
	printf("%s %s\n", ibv_get_device_name(device), context ? "opens" : "is refused");
	if (context)
		ibv_close_device(context);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	int with_files = has_files("mlx5_0"), count = 0;
	puts(names());
	struct ibv_device *old = ibv_get_device_list(&count)[0];
	struct ibv_context *context = ibv_open_device(old);
	if (!context)
		return 1;
	puts("open");
	struct ibv_async_event event;
	while (!ibv_get_async_event(context, &event)) {
		ibv_ack_async_event(&event);
		if (event.event_type == IBV_EVENT_DEVICE_FATAL)
			break;
	}
	puts("lost");
	wait_for("mlx5_1");
	while (with_files && has_files("mlx5_0"))
		usleep(10000);
	ibv_close_device(context);
	puts("closed");
	wait_for("mlx5_1 mlx5_7");
	open_it(old);
	while (with_files && !has_files("mlx5_7"))
		usleep(10000);
	if (has_files("mlx5_0"))
		return 1;
	struct ibv_device **all = ibv_get_device_list(&count);
	open_it(all[1]);
	puts(with_files ? "with files" : "without files");
	return 0;
}
