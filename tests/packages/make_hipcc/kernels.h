#pragma once
void run();
